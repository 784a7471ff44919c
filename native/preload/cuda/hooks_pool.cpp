// Stream-ordered allocation. Whether a pool grows, and by how much, only the driver knows: an allocation is let through
// if the growth to be expected fits, and given back should the pool have grown past the budget all the same.
#include "admission.h"
#include "driver.h"
#include "graph_hooks.h"
#include "known_pools.h"
#include "pools.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

/** The driver's calls for one kind of default stream, of which a program uses the legacy one or one for each thread. */
struct Calls {
  Result (*free)(Address, Stream);
  Result (*wait)(Stream);
  Result (*isCapturing)(Stream, int*);
};

bool capturing(Stream stream, const Calls& calls) {
  int status = 0;
  return calls.isCapturing != nullptr && calls.isCapturing(stream, &status) == kSuccess && status != 0;
}

template <class Call>
Result allocate(Pool pool, Address* address, uint64_t size, Stream stream, const char* api, Calls calls, Call call) {
  const DeviceIndex deviceIndex = deviceIndexOfPool(pool);
  if (deviceIndex < 0 || !account::gate().attached()) return call();
  // Inside a capture the memory becomes a node of the graph: the pool does not grow, the graph's memory does.
  if (capturing(stream, calls)) {
    return graphNodeFits(deviceIndex, size, api) ? call() : kOutOfMemory;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    // Far from the limit there is nothing to ask first.
    uint64_t growth = 0;
    if (account::available(deviceIndex) < size + (1ULL << 30)) growth = growthFor(pool, size);
    if (!account::admit(deviceIndex, growth, api)) return kOutOfMemory;
    account::DriverCall driverCallUnderWay;
    Result result = call();
    if (result != kSuccess) {
      account::gate().cancel(deviceIndex, growth);
      if (result == kOutOfMemory) account::refused(deviceIndex, size, api, kByDriver);
      return result;
    }
    if (countGrowth(pool, deviceIndex, growth)) return result;
    if (calls.free == nullptr) {
      account::gate().cancel(deviceIndex, growth);
      refreshPool(pool);
      return result;
    }
    // Idle memory in pieces made the pool grow all the same. It can shrink only when the stream has got so far; a
    // driver that is out of memory waits for that as well, and tries once more.
    const RelaxedCapture relaxed;
    calls.free(*address, stream);
    if (calls.wait != nullptr) calls.wait(stream);
    *address = 0;
    trimPools(deviceIndex);
    account::gate().cancel(deviceIndex, growth);
  }
  account::refused(deviceIndex, size, api, kByBudget);
  return kOutOfMemory;
}

Calls plain() { return {driver.memFreeAsync, driver.streamSynchronize, driver.streamIsCapturing}; }
Calls perThread() { return {driver.memFreeAsyncPtsz, driver.streamSynchronizePtsz, driver.streamIsCapturingPtsz}; }

Pool poolOfStream(Stream stream) {
  const DeviceIndex deviceIndex = account::deviceIndexOfStream(stream);
  const Device ordinal = account::ordinalOf(deviceIndex);
  Pool pool = nullptr;
  if (ordinal < 0 || driver.deviceGetMemPool == nullptr || driver.deviceGetMemPool(&pool, ordinal) != kSuccess) {
    return nullptr;
  }
  if (deviceIndexOfPool(pool) == kUnknownPool) knowPool(pool, deviceIndex, Origin::kBuiltIn);
  return pool;
}

OOMTUNE_HOOK(cuMemAllocAsync, Address* address, size_t size, Stream stream) {
  return allocate(poolOfStream(stream), address, size, stream, "cuMemAllocAsync", plain(),
                  [=] { return cuMemAllocAsync_real(address, size, stream); });
}

OOMTUNE_HOOK(cuMemAllocAsync_ptsz, Address* address, size_t size, Stream stream) {
  return allocate(poolOfStream(stream), address, size, stream, "cuMemAllocAsync_ptsz", perThread(),
                  [=] { return cuMemAllocAsync_ptsz_real(address, size, stream); });
}

/** A pool that came by no way that is hooked is taken to lie where its stream runs. */
Pool named(Pool pool, Stream stream) {
  if (deviceIndexOfPool(pool) == kUnknownPool) knowPool(pool, account::deviceIndexOfStream(stream), Origin::kMade);
  return pool;
}

OOMTUNE_HOOK(cuMemAllocFromPoolAsync, Address* address, size_t size, Pool pool, Stream stream) {
  return allocate(named(pool, stream), address, size, stream, "cuMemAllocFromPoolAsync", plain(),
                  [=] { return cuMemAllocFromPoolAsync_real(address, size, pool, stream); });
}

OOMTUNE_HOOK(cuMemAllocFromPoolAsync_ptsz, Address* address, size_t size, Pool pool, Stream stream) {
  return allocate(named(pool, stream), address, size, stream, "cuMemAllocFromPoolAsync_ptsz", perThread(),
                  [=] { return cuMemAllocFromPoolAsync_ptsz_real(address, size, pool, stream); });
}

Kind kindOf(int type) { return type == kAllocationManaged ? kManaged : kAsync; }

OOMTUNE_HOOK(cuMemPoolCreate, Pool* pool, const PoolProps* props) {
  Result result = cuMemPoolCreate_real(pool, props);
  if (result == kSuccess && props != nullptr) {
    knowPool(*pool, account::deviceIndexOf(props->location), Origin::kMade, kindOf(props->type));
  }
  return result;
}

OOMTUNE_HOOK(cuMemPoolImportFromShareableHandle, Pool* pool, void* from, int type, unsigned long long flags) {
  Result result = cuMemPoolImportFromShareableHandle_real(pool, from, type, flags);
  if (result == kSuccess) knowPool(*pool, account::kNotCounted, Origin::kMade);
  return result;
}

OOMTUNE_HOOK(cuMemPoolDestroy, Pool pool) {
  account::DriverCall driverCallUnderWay;
  LeavingPool leaving{};
  const bool ours = takePool(pool, &leaving);
  Result result = cuMemPoolDestroy_real(pool);
  if (ours && result == kSuccess) poolGone(leaving);
  if (ours && result != kSuccess) poolStays(pool, leaving);
  return result;
}

OOMTUNE_HOOK(cuMemPoolTrimTo, Pool pool, size_t keep) {
  account::DriverCall driverCallUnderWay;
  Result result = cuMemPoolTrimTo_real(pool, keep);
  if (result == kSuccess) refreshPool(pool);
  return result;
}

// The ways to a pool that nobody made: where it lies has to be noted here, as the driver does not tell it later.
OOMTUNE_HOOK(cuDeviceGetDefaultMemPool, Pool* pool, Device device) {
  Result result = cuDeviceGetDefaultMemPool_real(pool, device);
  if (result == kSuccess) knowPool(*pool, account::deviceIndexOf(device), Origin::kBuiltIn);
  return result;
}

OOMTUNE_HOOK(cuDeviceGetMemPool, Pool* pool, Device device) {
  Result result = cuDeviceGetMemPool_real(pool, device);
  if (result == kSuccess) knowPool(*pool, account::deviceIndexOf(device), Origin::kBuiltIn);
  return result;
}

OOMTUNE_HOOK(cuMemGetDefaultMemPool, Pool* pool, Location* location, int type) {
  Result result = cuMemGetDefaultMemPool_real(pool, location, type);
  if (result == kSuccess && location != nullptr) {
    knowPool(*pool, account::deviceIndexOf(*location), Origin::kBuiltIn, kindOf(type));
  }
  return result;
}

OOMTUNE_HOOK(cuMemGetMemPool, Pool* pool, Location* location, int type) {
  Result result = cuMemGetMemPool_real(pool, location, type);
  if (result == kSuccess && location != nullptr) {
    knowPool(*pool, account::deviceIndexOf(*location), Origin::kBuiltIn, kindOf(type));
  }
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemAllocAsync),
    OOMTUNE_HOOKED(cuMemAllocAsync_ptsz),
    OOMTUNE_HOOKED(cuMemAllocFromPoolAsync),
    OOMTUNE_HOOKED(cuMemAllocFromPoolAsync_ptsz),
    OOMTUNE_HOOKED(cuMemPoolCreate),
    OOMTUNE_HOOKED(cuMemPoolDestroy),
    OOMTUNE_HOOKED(cuMemPoolImportFromShareableHandle),
    OOMTUNE_HOOKED(cuMemPoolTrimTo),
    OOMTUNE_HOOKED(cuDeviceGetDefaultMemPool),
    OOMTUNE_HOOKED(cuDeviceGetMemPool),
    OOMTUNE_HOOKED(cuMemGetDefaultMemPool),
    OOMTUNE_HOOKED(cuMemGetMemPool),
};

}  // namespace

extern const HookList kPoolHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
