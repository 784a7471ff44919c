// What ends, in whichever order: contexts, pools, handles and imports, and names that the driver gives anew at once.
#include <pthread.h>
#include <unistd.h>

#include <initializer_list>

#include "scenarios.h"

namespace {

using FromPool = Result(Address*, size_t, Pool, Stream);
using FreeAsync = Result(Address, Stream);
using Retain = Result(Context*, Device);
using Create = Result(Handle*, size_t, const AllocationProp*, unsigned long long);
using Map = Result(Address, size_t, size_t, Handle, unsigned long long);

void beginPrimary() {
  Context context = nullptr;
  CHECK_EQUAL(start(), 0);
  CHECK_EQUAL((call<Retain>("cuDevicePrimaryCtxRetain", &context, 0)), 0);
  CHECK_EQUAL((call<Result(Context)>("cuCtxSetCurrent", context)), 0);
}

Pool makePool(int type = kAllocationPinned) {
  PoolProps props{};
  props.type = type;
  props.location = Location{kLocationDevice, 0};
  Pool pool = nullptr;
  CHECK_EQUAL((call<Result(Pool*, const PoolProps*)>("cuMemPoolCreate", &pool, &props)), 0);
  return pool;
}

Handle makePhysical(size_t size) {
  AllocationProp prop{};
  prop.location = Location{kLocationDevice, 0};
  Handle handle = 0;
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size, &prop, 0ULL)), 0);
  return handle;
}

void* releaseSlowly(void* handle) {
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", *static_cast<Handle*>(handle))), 0);
  return nullptr;
}

void* resetSlowly(void*) {
  CHECK_EQUAL((call<Result(Device)>("cuDevicePrimaryCtxReset_v2", 0)), 0);
  return nullptr;
}

/** Runs `slow` (FAKE_SLOW: it goes on for 200 ms after the driver has given everything back), and returns meanwhile. */
pthread_t during(void* (*slow)(void*), void* argument) {
  pthread_t thread{};
  CHECK_EQUAL(pthread_create(&thread, nullptr, slow, argument), 0);
  usleep(60000);
  return thread;
}

}  // namespace

void scenarioContextForms() {  // each form of creation and destruction
  CHECK_EQUAL(start(), 0);
  Context context = nullptr;
  Address address = 0;
  for (int form = 1; form <= 4; ++form) {
    if (form == 1) CHECK_EQUAL((call<Result(Context*, unsigned, Device)>("cuCtxCreate", &context, 0u, 0)), 0);
    if (form == 2) CHECK_EQUAL(makeContext(&context), 0);
    void* none = nullptr;
    if (form == 3) {
      using Third = Result(Context*, void*, int, unsigned, Device);
      CHECK_EQUAL((call<Third>("cuCtxCreate_v3", &context, none, 0, 0u, 0)), 0);
    }
    if (form == 4) {
      using Fourth = Result(Context*, void*, unsigned, Device);
      CHECK_EQUAL((call<Fourth>("cuCtxCreate_v4", &context, none, 0u, 0)), 0);
    }
    CHECK_EQUAL(overhead(), 100 * MiB);
    CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
    CHECK_EQUAL((call<Result(Context)>(form % 2 == 0 ? "cuCtxDestroy" : "cuCtxDestroy_v2", context)), 0);
    CHECK_EQUAL(live(), 0);
  }
  for (const char* end : {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset",
                          "cuDevicePrimaryCtxReset_v2"}) {
    beginPrimary();
    CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
    CHECK_EQUAL((call<Result(Device)>(end, 0)), 0);
    CHECK_EQUAL(committed(), 0);
  }
}

void scenarioReset() {  // a reset takes the pools with it, and nobody may ask them anything any more
  beginPrimary();
  Address address = 0;
  const Pool pool = makePool();
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL((call<Result(Address*, size_t, Stream)>("cuMemAllocAsync", &address, size_t{40 * MiB}, Stream{})), 0);
  CHECK_EQUAL(allocate(&address, 20 * MiB), 0);
  CHECK_EQUAL(live(), (100 + 64 + 64 + 20) * MiB);
  CHECK_EQUAL((call<Result(Device)>("cuDevicePrimaryCtxReset_v2", 0)), 0);
  CHECK_EQUAL(live(), 0);
  CHECK_EQUAL(committed(), 0);
  beginPrimary();
  CHECK_EQUAL(allocate(&address, 412 * MiB), 0);
  CHECK_EQUAL(live(), 512 * MiB);
}

void scenarioResetRace() {  // a thread makes the primary context anew, by the same name, while another one resets it
  beginPrimary();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 80 * MiB), 0);
  const pthread_t thread = during(resetSlowly, nullptr);
  beginPrimary();
  CHECK_EQUAL(allocate(&address, 30 * MiB), 0);
  pthread_join(thread, nullptr);
  CHECK_EQUAL(kind(oomtune::kClassic), 30 * MiB);  // neither the old 80 nor nothing
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
}

void scenarioPoolOutlived() {  // a pool is destroyed while something of it is in use
  begin();
  Address held = 0;
  Address address = 0;
  const Pool pool = makePool();
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &held, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{60 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 128 * MiB);
  CHECK_EQUAL((call<Result(Pool)>("cuMemPoolDestroy", pool)), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 0);
  CHECK_EQUAL(live(), 140 * MiB);  // what is in use is still there, as overhead: nobody will see it freed
  CHECK_EQUAL(overhead(), 140 * MiB);
  CHECK_EQUAL(allocate(&address, 374 * MiB), kOutOfMemory);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", held, Stream{})), 0);
  CHECK_EQUAL(allocate(&address, 412 * MiB), 0);
  CHECK_EQUAL(overhead(), 100 * MiB);
}

void scenarioPoolStays() {  // FAKE_FAIL: the first destruction answers 1
  begin();
  Address address = 0;
  const Pool pool = makePool(kAllocationManaged);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kManaged), 64 * MiB);
  CHECK_EQUAL((call<Result(Pool)>("cuMemPoolDestroy", pool)), 1);
  CHECK_EQUAL(kind(oomtune::kManaged), 64 * MiB);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  CHECK_EQUAL((call<Result(Pool)>("cuMemPoolDestroy", pool)), 0);
  CHECK_EQUAL(kind(oomtune::kManaged), 0);
  CHECK_EQUAL(committed(), live());
}

void scenarioHandleRace() {  // the driver gives a handle anew while another thread is still giving it back
  begin();
  Handle handle = makePhysical(20 * MiB);
  const pthread_t thread = during(releaseSlowly, &handle);
  const Handle again = makePhysical(10 * MiB);
  CHECK_EQUAL(again, handle);
  pthread_join(thread, nullptr);
  CHECK_EQUAL(kind(oomtune::kVmm), 10 * MiB);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", again)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
}

void scenarioVmmOrders() {  // FAKE_FAIL: the first release answers 1
  begin();
  const Address range = 1ULL << 40;
  Handle handle = makePhysical(20 * MiB);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 1);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  // Mapped twice, unmapped before the handle goes: each way the last one out gives it back.
  CHECK_EQUAL((call<Map>("cuMemMap", range, size_t{20 * MiB}, size_t{0}, handle, 0ULL)), 0);
  CHECK_EQUAL((call<Map>("cuMemMap", range + 64 * MiB, size_t{20 * MiB}, size_t{0}, handle, 0ULL)), 0);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{20 * MiB})), 0);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range + 64 * MiB, size_t{20 * MiB})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  handle = makePhysical(20 * MiB);
  CHECK_EQUAL((call<Map>("cuMemMap", range, size_t{20 * MiB}, size_t{0}, handle, 0ULL)), 0);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{20 * MiB})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  // A multicast object has a handle and can be mapped, but is no memory.
  const uint64_t before = committed();
  const void* none = nullptr;
  CHECK_EQUAL((call<Result(Handle*, const void*)>("cuMulticastCreate", &handle, none)), 0);
  CHECK_EQUAL((call<Map>("cuMemMap", range, size_t{64 * MiB}, size_t{0}, handle, 0ULL)), 0);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{64 * MiB})), 0);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  AllocationProp onHost{};
  onHost.location = Location{kLocationHostNuma, 0};
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{600 * MiB}, &onHost, 0ULL)), 0);
  CHECK_EQUAL(committed(), before);
}

void scenarioImportedTwice() {  // the same memory opened twice is there until it has been closed twice
  begin();
  IpcMemHandle handle{};
  const uint64_t size = 300 * MiB;
  memcpy(handle.reserved, &size, sizeof size);
  Address first = 0;
  Address second = 0;
  Address own = 0;
  using Open = Result(Address*, IpcMemHandle, unsigned);
  CHECK_EQUAL((call<Open>("cuIpcOpenMemHandle", &first, handle, 0u)), 0);
  CHECK_EQUAL((call<Open>("cuIpcOpenMemHandle_v2", &second, handle, 0u)), 0);
  CHECK_EQUAL(first, second);
  CHECK_EQUAL((call<Result(Address)>("cuIpcCloseMemHandle", first)), 0);
  CHECK_EQUAL(allocate(&own, 412 * MiB), 0);
  CHECK_EQUAL(overhead(), 100 * MiB);
  CHECK_EQUAL((call<Result(Address)>("cuIpcCloseMemHandle", first)), 0);
  CHECK_EQUAL((call<Result(Address)>("cuIpcCloseMemHandle", first)), 1);
}

void scenarioClosed() {  // a program closes the driver's library and goes on with what it has got from it
  begin();
  auto* alloc = find<Result(Address*, size_t)>("cuMemAlloc_v2");
  Address address = 0;
  CHECK_EQUAL(dlclose(library()), 0);
  CHECK_EQUAL(alloc(&address, 412 * MiB), 0);
  CHECK_EQUAL(alloc(&address, 2 * MiB), kOutOfMemory);
  CHECK_EQUAL(live(), 512 * MiB);
}
