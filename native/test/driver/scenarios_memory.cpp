// One scenario a consumer of device memory. Budget 512 MiB, a context takes 100 MiB, unless the test says otherwise.
#include <initializer_list>

#include "scenarios.h"

void scenarioLinear() {
  begin();
  CHECK_EQUAL(overhead(), 100 * MiB);
  CHECK_EQUAL(live(), 100 * MiB);
  Address first = 0;
  Address second = 0;
  CHECK_EQUAL(allocate(&first, 10 * MiB + 1), 0);  // the driver deals in 2 MiB
  CHECK_EQUAL(live(), 112 * MiB);
  CHECK_EQUAL(allocate(&second, 4096), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 12 * MiB + 4096);
  CHECK_EQUAL(release(first), 0);
  CHECK_EQUAL(release(second), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
  CHECK(peak() >= 112 * MiB);
  CHECK_EQUAL(release(first), 1);  // the driver's own error
  CHECK_EQUAL(committed(), live());
}

void scenarioRefusal() {
  begin();
  Address all = 0;
  Address more = 0;
  CHECK_EQUAL(allocate(&all, 412 * MiB), 0);
  CHECK_EQUAL(committed(), 512 * MiB);
  CHECK_EQUAL(allocate(&more, 2 * MiB), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 1);
  const oomtune::RefusalEntry& refusal = ledger().refusals[0];
  CHECK_EQUAL(refusal.size.load(), 2 * MiB);
  CHECK_EQUAL(refusal.live.load(), 512 * MiB);
  CHECK_EQUAL(refusal.budget.load(), 512 * MiB);
  CHECK_EQUAL(refusal.by.load(), oomtune::kByBudget);
  CHECK_EQUAL(committed(), 512 * MiB);
  CHECK_EQUAL(release(all), 0);
  CHECK_EQUAL(allocate(&more, 400 * MiB), 0);  // it recovers
  CHECK_EQUAL(peak(), 512 * MiB);
}

void scenarioFigures() {
  begin();
  Address address = 0;
  size_t free = 0;
  size_t total = 0;
  CHECK_EQUAL(allocate(&address, 100 * MiB), 0);
  using GetInfo = Result(size_t*, size_t*);
  CHECK_EQUAL((call<GetInfo>("cuMemGetInfo_v2", &free, &total)), 0);
  CHECK_EQUAL(total, 512 * MiB);
  CHECK_EQUAL(free, 312 * MiB);
  CHECK_EQUAL((call<GetInfo>("cuMemGetInfo_v2", static_cast<size_t*>(nullptr), &total)), 0);
  CHECK_EQUAL((call<GetInfo>("cuMemGetInfo_v2", &free, static_cast<size_t*>(nullptr))), 0);
  CHECK_EQUAL((call<Result(size_t*, Device)>("cuDeviceTotalMem_v2", &total, 0)), 0);
  CHECK_EQUAL(total, 512 * MiB);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_live")(0)), 200 * MiB);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_budget")(0)), 512 * MiB);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_budget")(7)), 0);
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_peak")(0)), 200 * MiB);
  find<void(int)>("oomtune_reset_peak")(0);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_peak")(0)), 100 * MiB);
  CHECK_EQUAL(peak(), 200 * MiB);  // the launch's own peak stays
}

void scenarioPitch() {
  begin();
  Address address = 0;
  size_t pitch = 0;
  using AllocPitch = Result(Address*, size_t*, size_t, size_t, unsigned);
  CHECK_EQUAL((call<AllocPitch>("cuMemAllocPitch_v2", &address, &pitch, size_t{600}, size_t{20000}, 4u)), 0);
  CHECK_EQUAL(pitch, 1024);
  CHECK_EQUAL(kind(oomtune::kClassic), 20 * MiB);  // 1024 x 20000, in steps of 2 MiB
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
  CHECK_EQUAL(committed(), live());
}

void scenarioManaged() {
  begin();
  Address address = 0;
  using AllocManaged = Result(Address*, size_t, unsigned);
  CHECK_EQUAL((call<AllocManaged>("cuMemAllocManaged", &address, size_t{64 * MiB}, 1u)), 0);
  CHECK_EQUAL(kind(oomtune::kManaged), 64 * MiB);
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(kind(oomtune::kManaged), 0);
  CHECK_EQUAL((call<AllocManaged>("cuMemAllocManaged", &address, size_t{600 * MiB}, 1u)), kOutOfMemory);
}

void scenarioHost() {
  begin();
  void* first = nullptr;
  void* second = nullptr;
  const uint64_t before = committed();
  CHECK_EQUAL((call<Result(void**, size_t, unsigned)>("cuMemHostAlloc", &first, size_t{3000 * MiB / 3}, 0u)), 0);
  CHECK_EQUAL((call<Result(void**, size_t)>("cuMemAllocHost_v2", &second, size_t{5000})), 0);
  CHECK_EQUAL(kind(oomtune::kHostPinned, 0), 1000 * MiB + 5000);
  CHECK_EQUAL(committed(), before);  // none of it is the device's
  CHECK_EQUAL((call<Result(void*)>("cuMemFreeHost", first)), 0);
  CHECK_EQUAL((call<Result(void*)>("cuMemFreeHost", second)), 0);
  CHECK_EQUAL(kind(oomtune::kHostPinned, 0), 0);
  // The program's own memory, pinned from outside
  char own[8192];
  for (const char* pin : {"cuMemHostRegister", "cuMemHostRegister_v2"}) {
    CHECK_EQUAL((call<Result(void*, size_t, unsigned)>(pin, static_cast<void*>(own), sizeof own, 0u)), 0);
    CHECK_EQUAL(kind(oomtune::kHostPinned, 0), 8192);
    CHECK_EQUAL((call<Result(void*)>("cuMemHostUnregister", static_cast<void*>(own))), 0);
    CHECK_EQUAL(kind(oomtune::kHostPinned, 0), 0);
  }
  CHECK_EQUAL((call<Result(void*)>("cuMemHostUnregister", static_cast<void*>(own))), 713);
}

void scenarioFirstForms() {
  begin();
  unsigned int address = 0;
  unsigned int pitch = 0;
  unsigned int free = 0;
  unsigned int total = 0;
  using Alloc = Result(unsigned*, unsigned);
  CHECK_EQUAL((call<Alloc>("cuMemAlloc", &address, 20u << 20)), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 20 * MiB);
  CHECK_EQUAL((call<Result(unsigned*, unsigned*)>("cuMemGetInfo", &free, &total)), 0);
  CHECK_EQUAL(total, 512 * MiB);
  CHECK_EQUAL(free, 392 * MiB);
  CHECK_EQUAL((call<Result(unsigned*, Device)>("cuDeviceTotalMem", &total, 0)), 0);
  CHECK_EQUAL(total, 512 * MiB);
  CHECK_EQUAL((call<Result(unsigned)>("cuMemFree", address)), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
  CHECK_EQUAL((call<Result(unsigned)>("cuMemFree", address)), 1);
  CHECK_EQUAL((call<Alloc>("cuMemAlloc", &address, 600u << 20)), kOutOfMemory);
  using Pitch = Result(unsigned*, unsigned*, unsigned, unsigned, unsigned);
  CHECK_EQUAL((call<Pitch>("cuMemAllocPitch", &address, &pitch, 1000u, 20480u, 4u)), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 20 * MiB);
  CHECK_EQUAL((call<Result(unsigned)>("cuMemFree", address)), 0);
  void* host = nullptr;
  CHECK_EQUAL((call<Result(void**, unsigned)>("cuMemAllocHost", &host, 5000u)), 0);
  CHECK_EQUAL(kind(oomtune::kHostPinned, 0), 5000);
  CHECK_EQUAL((call<Result(void*)>("cuMemFreeHost", host)), 0);
  Array array = nullptr;
  FirstArrayDescriptor flat{2048, 1024, 0x20, 2};
  CHECK_EQUAL((call<Result(Array*, const FirstArrayDescriptor*)>("cuArrayCreate", &array, &flat)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 16 * MiB);
  CHECK_EQUAL((call<Result(Array)>("cuArrayDestroy", array)), 0);
  FirstArray3dDescriptor deep{256, 256, 64, 0x20, 1, 0};
  CHECK_EQUAL((call<Result(Array*, const FirstArray3dDescriptor*)>("cuArray3DCreate", &array, &deep)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 16 * MiB);
  CHECK_EQUAL((call<Result(Array)>("cuArrayDestroy", array)), 0);
  CHECK_EQUAL(committed(), live());
  CHECK_EQUAL(live(), 100 * MiB);
}

void scenarioArrays() {
  begin();
  Array array = nullptr;
  Mipmap mipmap = nullptr;
  ArrayDescriptor flat{2048, 1024, 0x20, 2};  // 16 MiB of float2
  CHECK_EQUAL((call<Result(Array*, const ArrayDescriptor*)>("cuArrayCreate_v2", &array, &flat)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 16 * MiB);
  CHECK_EQUAL((call<Result(Array)>("cuArrayDestroy", array)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 0);
  Array3dDescriptor deep{256, 256, 64, 0x20, 1, 0};
  CHECK_EQUAL((call<Result(Array*, const Array3dDescriptor*)>("cuArray3DCreate_v2", &array, &deep)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 16 * MiB);
  CHECK_EQUAL((call<Result(Array)>("cuArrayDestroy", array)), 0);
  Array3dDescriptor pyramid{1024, 1024, 0, 0x20, 1, 0};
  using MipCreate = Result(Mipmap*, const Array3dDescriptor*, unsigned);
  CHECK_EQUAL((call<MipCreate>("cuMipmappedArrayCreate", &mipmap, &pyramid, 2u)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 5 * MiB);  // 4 MiB and a quarter of it
  CHECK_EQUAL((call<Result(Mipmap)>("cuMipmappedArrayDestroy", mipmap)), 0);
  CHECK_EQUAL(kind(oomtune::kArray), 0);
  Array3dDescriptor sparse{65536, 65536, 0, 0x20, 4, 0x40};  // no memory of its own
  const uint64_t refusedBefore = refusedCalls();
  call<Result(Array*, const Array3dDescriptor*)>("cuArray3DCreate_v2", &array, &sparse);
  CHECK_EQUAL(kind(oomtune::kArray), 0);
  CHECK_EQUAL(refusedCalls(), refusedBefore);
  Array3dDescriptor huge{16384, 16384, 0, 0x20, 4, 0};  // 4 GiB
  CHECK_EQUAL((call<Result(Array*, const Array3dDescriptor*)>("cuArray3DCreate_v2", &array, &huge)), kOutOfMemory);
}

void scenarioImports() {
  begin();
  CHECK_EQUAL(overhead(), 100 * MiB);
  Address address = 0;
  IpcMemHandle handle{};
  const uint64_t size = 300 * MiB;
  memcpy(handle.reserved, &size, sizeof size);
  using Open = Result(Address*, IpcMemHandle, unsigned);
  CHECK_EQUAL((call<Open>("cuIpcOpenMemHandle_v2", &address, handle, 0u)), 0);
  Address own = 0;
  CHECK_EQUAL(allocate(&own, 412 * MiB), 0);  // the other process's 300 MiB are not charged here
  CHECK_EQUAL(live(), 512 * MiB);
  CHECK_EQUAL((call<Result(Address)>("cuIpcCloseMemHandle", address)), 0);
  CHECK_EQUAL(release(own), 0);
  CHECK_EQUAL(allocate(&own, 300 * MiB), 0);
  CHECK_EQUAL(overhead(), 100 * MiB);
}

void scenarioContexts() {
  CHECK_EQUAL(start(), 0);
  Context context = nullptr;
  Address address = 0;
  CHECK_EQUAL(makeContext(&context), 0);
  CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
  CHECK_EQUAL(live(), 150 * MiB);
  CHECK_EQUAL((call<Result(Context)>("cuCtxDestroy_v2", context)), 0);
  CHECK_EQUAL(live(), 0);  // what was in it went with it
  using Retain = Result(Context*, Device);
  CHECK_EQUAL((call<Retain>("cuDevicePrimaryCtxRetain", &context, 0)), 0);
  CHECK_EQUAL((call<Result(Context)>("cuCtxSetCurrent", context)), 0);
  CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
  CHECK_EQUAL(live(), 150 * MiB);
  CHECK_EQUAL((call<Retain>("cuDevicePrimaryCtxRetain", &context, 0)), 0);
  CHECK_EQUAL((call<Result(Device)>("cuDevicePrimaryCtxRelease_v2", 0)), 0);
  CHECK_EQUAL(live(), 150 * MiB);  // one reference is left
  CHECK_EQUAL((call<Result(Device)>("cuDevicePrimaryCtxReset_v2", 0)), 0);
  CHECK_EQUAL(live(), 0);
  CHECK_EQUAL(committed(), 0);
}

void scenarioContextRefused() {  // budget 50 MiB
  CHECK_EQUAL(start(), 0);
  Context context = nullptr;
  CHECK_EQUAL(makeContext(&context), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 1);
  CHECK_EQUAL(committed(), 0);
  CHECK_EQUAL((call<Result(Context*, Device)>("cuDevicePrimaryCtxRetain", &context, 0)), kOutOfMemory);
  CHECK_EQUAL(committed(), 0);
}

void scenarioGreen() {  // budget 140 MiB: the context takes 100, each part of the device 30
  begin();
  using Create = Result(GreenContext*, void*, Device, unsigned);
  GreenContext first = nullptr;
  GreenContext second = nullptr;
  CHECK_EQUAL((call<Create>("cuGreenCtxCreate", &first, static_cast<void*>(nullptr), 0, 1u)), 0);
  CHECK_EQUAL(live(), 130 * MiB);
  CHECK_EQUAL((call<Create>("cuGreenCtxCreate", &second, static_cast<void*>(nullptr), 0, 1u)), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 1);
  CHECK_EQUAL(live(), 130 * MiB);
  CHECK_EQUAL((call<Result(GreenContext)>("cuGreenCtxDestroy", first)), 0);
  CHECK_EQUAL(live(), 100 * MiB);
}

void scenarioHeap() {
  begin();
  size_t heap = 0;
  using Set = Result(int, size_t);
  CHECK_EQUAL((call<Set>("cuCtxSetLimit", kLimitHeap, size_t{200 * MiB})), 0);
  CHECK_EQUAL((call<Set>("cuCtxSetLimit", kLimitHeap, size_t{900 * MiB})), kOutOfMemory);
  CHECK_EQUAL((call<Result(size_t*, int)>("cuCtxGetLimit", &heap, kLimitHeap)), 0);
  CHECK_EQUAL(heap, 200 * MiB);                                                 // the driver was not asked
  CHECK_EQUAL((call<Set>("cuCtxSetLimit", kLimitHeap, size_t{100 * MiB})), 0);  // less is never refused
  CHECK_EQUAL((call<Set>("cuCtxSetLimit", 0, size_t{900 * MiB})), 0);           // another limit
  CHECK_EQUAL(committed(), 100 * MiB);
}
