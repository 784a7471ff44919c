// Memory that is not bound to one call: stream-ordered pools, physical memory and its mappings, graphs.
#include <initializer_list>

#include "scenarios.h"

namespace {

using AllocAsync = Result(Address*, size_t, Stream);
using FreeAsync = Result(Address, Stream);

}  // namespace

void scenarioAsync() {
  begin();
  Address first = 0;
  Address second = 0;
  // A pool grows by 32 MiB: what it has reserved counts, not what lives in it.
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &first, size_t{10 * MiB}, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 32 * MiB);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync_ptsz", &second, size_t{30 * MiB}, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", first, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync_ptsz", second, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);  // the pool keeps it
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &first, size_t{500 * MiB}, Stream{})), kOutOfMemory);
  CHECK_EQUAL(kind(oomtune::kAsync), 0);  // trimmed before the refusal
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &first, size_t{384 * MiB}, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 384 * MiB);
  // 20 MiB would fit, the 32 MiB by which the pool would grow would not.
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &second, size_t{20 * MiB}, Stream{})), kOutOfMemory);
  CHECK(committed() <= 512 * MiB);
  CHECK_EQUAL(refusedCalls(), 2);
  Pool pool = nullptr;
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", first, Stream{})), 0);
  CHECK_EQUAL((call<Result(Pool*, Device)>("cuDeviceGetDefaultMemPool", &pool, 0)), 0);
  CHECK_EQUAL((call<Result(Pool, size_t)>("cuMemPoolTrimTo", pool, size_t{0})), 0);
  CHECK_EQUAL(live(), 100 * MiB);
}

void scenarioPieces() {  // idle memory lies in pieces: pools grow where nobody would think so
  begin();
  Address first = 0;
  Address second = 0;
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &first, size_t{192 * MiB}, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", first, Stream{})), 0);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &first, size_t{160 * MiB}, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 352 * MiB);
  // 192 MiB are idle, and yet the pool grows by 128 MiB more, past the budget: it is trimmed, then there is room.
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &second, size_t{128 * MiB}, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 288 * MiB);
  CHECK_EQUAL(refusedCalls(), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", second, Stream{})), 0);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &second, size_t{256 * MiB}, Stream{})), kOutOfMemory);
  CHECK_EQUAL(kind(oomtune::kAsync), 160 * MiB);
  CHECK_EQUAL(refusedCalls(), 1);
  CHECK(peak() <= 512 * MiB);
  CHECK_EQUAL(committed(), live());
}

void scenarioPools() {
  begin();
  PoolProps props{};
  props.location = Location{kLocationDevice, 0};
  Pool pool = nullptr;
  Address address = 0;
  CHECK_EQUAL((call<Result(Pool*, const PoolProps*)>("cuMemPoolCreate", &pool, &props)), 0);
  using FromPool = Result(Address*, size_t, Pool, Stream);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync_ptsz", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);
  CHECK_EQUAL((call<Result(Pool)>("cuMemPoolDestroy", pool)), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 0);
  props.location = Location{2, 0};  // host memory
  CHECK_EQUAL((call<Result(Pool*, const PoolProps*)>("cuMemPoolCreate", &pool, &props)), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 0);
}

void scenarioHostPools() {  // since CUDA 13 there are built-in pools of host memory, and of managed memory
  begin();
  Pool pool = nullptr;
  Address address = 0;
  using GetPool = Result(Pool*, Location*, int);
  using FromPool = Result(Address*, size_t, Pool, Stream);
  for (const char* get : {"cuMemGetDefaultMemPool", "cuMemGetMemPool"}) {
    for (Location location : {Location{kLocationHost, 0}, Location{kLocationHostNuma, 0}}) {
      CHECK_EQUAL((call<GetPool>(get, &pool, &location, int{kAllocationPinned})), 0);
      CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{600 * MiB}, pool, Stream{})), 0);
      CHECK_EQUAL(live(), 100 * MiB);
    }
  }
  Location device{kLocationDevice, 0};
  CHECK_EQUAL((call<GetPool>("cuMemGetMemPool", &pool, &device, int{kAllocationPinned})), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);
  Pool same = nullptr;
  CHECK_EQUAL((call<Result(Pool*, Device)>("cuDeviceGetMemPool", &same, 0)), 0);
  CHECK(same == pool);
  // A pool that comes from another process is its maker's.
  void* none = nullptr;
  using Import = Result(Pool*, void*, int, unsigned long long);
  CHECK_EQUAL((call<Import>("cuMemPoolImportFromShareableHandle", &pool, none, 1, 0ULL)), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{600 * MiB}, pool, Stream{})), 0);
  CHECK_EQUAL(live(), 164 * MiB);
}

void scenarioVmm() {
  begin();
  AllocationProp prop{};
  prop.location = Location{kLocationDevice, 0};
  Handle handle = 0;
  Handle again = 0;
  Address range = 0;
  using Create = Result(Handle*, size_t, const AllocationProp*, unsigned long long);
  using Reserve = Result(Address*, size_t, size_t, Address, unsigned long long);
  using Map = Result(Address, size_t, size_t, Handle, unsigned long long);
  const uint64_t before = committed();
  CHECK_EQUAL((call<Reserve>("cuMemAddressReserve", &range, size_t{64ULL << 30}, size_t{0}, Address{0}, 0ULL)), 0);
  CHECK_EQUAL(committed(), before);  // addresses are free
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{20 * MiB}, &prop, 0ULL)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  CHECK_EQUAL((call<Map>("cuMemMap", range, size_t{20 * MiB}, size_t{0}, handle, 0ULL)), 0);
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);  // still mapped
  void* inside = reinterpret_cast<void*>(range + 5 * MiB);
  CHECK_EQUAL((call<Result(Handle*, void*)>("cuMemRetainAllocationHandle", &again, inside)), 0);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{20 * MiB})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);  // still referred to
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", again)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  // Two pieces, unmapped in one go.
  for (int i = 0; i < 2; ++i) {
    CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{10 * MiB}, &prop, 0ULL)), 0);
    CHECK_EQUAL((call<Map>("cuMemMap", range + i * 10 * MiB, size_t{10 * MiB}, size_t{0}, handle, 0ULL)), 0);
    CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  }
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{20 * MiB})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{600 * MiB}, &prop, 0ULL)), kOutOfMemory);
  prop.location = Location{2, 0};
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{600 * MiB}, &prop, 0ULL)), 0);  // on the host
  using Import = Result(Handle*, void*, int);
  CHECK_EQUAL((call<Import>("cuMemImportFromShareableHandle", &handle, static_cast<void*>(nullptr), 1)), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);  // its maker pays
  CHECK_EQUAL((call<Result(Handle)>("cuMemRelease", handle)), 0);
  CHECK_EQUAL(committed(), before);
}

void scenarioHeld() {  // memory that only a piece of an array or of a multicast object still holds
  begin();
  AllocationProp prop{};
  prop.location = Location{kLocationDevice, 0};
  using Create = Result(Handle*, size_t, const AllocationProp*, unsigned long long);
  using Release = Result(Handle);
  const auto make = [&prop] {
    Handle handle = 0;
    CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{20 * MiB}, &prop, 0ULL)), 0);
    return handle;
  };
  for (const char* map : {"cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"}) {
    using MapArray = Result(ArrayMapInfo*, unsigned, Stream);
    Array array = nullptr;
    Array3dDescriptor sparse{64, 64, 0, 0x20, 4, 0x40};
    CHECK_EQUAL((call<Result(Array*, const Array3dDescriptor*)>("cuArray3DCreate_v2", &array, &sparse)), 0);
    ArrayMapInfo pieces[2] = {};
    const Handle made[2] = {make(), make()};
    for (unsigned i = 0; i < 2; ++i) {
      pieces[i].resource = reinterpret_cast<uint64_t>(array);
      pieces[i].subresource[0] = i;
      pieces[i].operation = kMapOperation;
      pieces[i].handle = made[i];
    }
    CHECK_EQUAL((call<MapArray>(map, pieces, 2u, Stream{})), 0);
    for (const Handle handle : made) CHECK_EQUAL((call<Release>("cuMemRelease", handle)), 0);
    CHECK_EQUAL(kind(oomtune::kVmm), 40 * MiB);
    Address address = 0;
    CHECK_EQUAL(allocate(&address, 374 * MiB),
                kOutOfMemory);  // measures: NVML's figure of the process lacks these 40 MiB
    CHECK_EQUAL(overhead(), 100 * MiB);
    pieces[0].operation = kUnmapOperation;
    CHECK_EQUAL((call<MapArray>(map, pieces, 1u, Stream{})), 0);
    CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
    pieces[1].operation = kUnmapOperation;
    CHECK_EQUAL((call<MapArray>(map, pieces + 1, 1u, Stream{})), 0);
    CHECK_EQUAL(kind(oomtune::kVmm), 0);
    CHECK_EQUAL((call<Result(Array)>("cuArrayDestroy", array)), 0);
  }
  Handle object = 0;
  CHECK_EQUAL((call<Result(Handle*, const void*)>("cuMulticastCreate", &object, static_cast<const void*>(nullptr))), 0);
  Handle memory = make();
  using BindMem = Result(Handle, size_t, Handle, size_t, size_t, unsigned long long);
  using BindMem2 = Result(Handle, Device, size_t, Handle, size_t, size_t, unsigned long long);
  CHECK_EQUAL((call<BindMem>("cuMulticastBindMem", object, size_t{0}, memory, size_t{0}, size_t{10}, 0ULL)), 0);
  CHECK_EQUAL((call<BindMem2>("cuMulticastBindMem_v2", object, 0, size_t{10}, memory, size_t{0}, size_t{10}, 0ULL)), 0);
  CHECK_EQUAL((call<Release>("cuMemRelease", memory)), 0);
  using Unbind = Result(Handle, Device, size_t, size_t);
  CHECK_EQUAL((call<Unbind>("cuMulticastUnbind", object, 0, size_t{0}, size_t{10})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);  // bound once more
  CHECK_EQUAL((call<Unbind>("cuMulticastUnbind", object, 0, size_t{10}, size_t{10})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  Address range = 0;
  using Reserve = Result(Address*, size_t, size_t, Address, unsigned long long);
  using Map = Result(Address, size_t, size_t, Handle, unsigned long long);
  using BindAddr = Result(Handle, size_t, Address, size_t, unsigned long long);
  using BindAddr2 = Result(Handle, Device, size_t, Address, size_t, unsigned long long);
  CHECK_EQUAL((call<Reserve>("cuMemAddressReserve", &range, size_t{20 * MiB}, size_t{0}, Address{0}, 0ULL)), 0);
  memory = make();
  CHECK_EQUAL((call<Map>("cuMemMap", range, size_t{20 * MiB}, size_t{0}, memory, 0ULL)), 0);
  CHECK_EQUAL((call<Release>("cuMemRelease", memory)), 0);
  CHECK_EQUAL((call<BindAddr>("cuMulticastBindAddr", object, size_t{0}, range, size_t{10}, 0ULL)), 0);
  CHECK_EQUAL((call<BindAddr2>("cuMulticastBindAddr_v2", object, 0, size_t{10}, range, size_t{10}, 0ULL)), 0);
  CHECK_EQUAL((call<Result(Address, size_t)>("cuMemUnmap", range, size_t{20 * MiB})), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 20 * MiB);
  CHECK_EQUAL((call<Release>("cuMemRelease", object)), 0);  // what was bound to it goes with it
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  CHECK_EQUAL(committed(), live());
}

void scenarioManyPools() {  // more than the stand-in has room for at first
  begin();
  PoolProps props{};
  props.location = Location{kLocationDevice, 0};
  constexpr int kMany = 700;
  Pool pools[kMany] = {};
  Address address = 0;
  using FromPool = Result(Address*, size_t, Pool, Stream);
  for (Pool& pool : pools) CHECK_EQUAL((call<Result(Pool*, const PoolProps*)>("cuMemPoolCreate", &pool, &props)), 0);
  CHECK_EQUAL((call<FromPool>("cuMemAllocFromPoolAsync", &address, size_t{40 * MiB}, pools[kMany - 1], Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 64 * MiB);
  CHECK_EQUAL(ledger().blind.load(), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  for (Pool pool : pools) CHECK_EQUAL((call<Result(Pool)>("cuMemPoolDestroy", pool)), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 0);
}
