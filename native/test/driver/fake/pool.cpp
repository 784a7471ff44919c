// Stream-ordered pools. They grow in steps of FAKE_POOL_STEP bytes (32 MiB, as seen on an H200 with driver 580).
#include <memory>

#include "card.h"

using namespace fake;

namespace fake {

namespace {

struct PoolState {
  int device;  // -1: of host memory
  bool builtIn;
  uint64_t used = 0;
  uint64_t reserved = 0;
  bool destroyed = false;  // gone for the program; what is still in use keeps it
};
using PoolPointer = std::shared_ptr<PoolState>;

std::map<Pool, PoolPointer> pools;
std::map<Address, std::pair<uint64_t, PoolPointer>> asyncBlocks;
Pool defaults[kDevices];
Pool currents[kDevices];
Pool hostDefault = nullptr;

uint64_t step() { return number("FAKE_POOL_STEP", 32 << 20); }
uint64_t stepped(uint64_t size) { return (size + step() - 1) / step() * step(); }

Pool makePool(int device, bool builtIn) {
  const Pool pool = reinterpret_cast<Pool>(newName(1));
  pools[pool] = std::make_shared<PoolState>(PoolState{device, builtIn});
  return pool;
}

Pool defaultPool(int device) {
  if (defaults[device] == nullptr) currents[device] = defaults[device] = makePool(device, true);
  return defaults[device];
}

Pool currentPool(int device) {
  defaultPool(device);
  return currents[device];
}

[[maybe_unused]] Pool hostPool() {
  if (hostDefault == nullptr) hostDefault = makePool(-1, true);
  return hostDefault;
}

/** Real drivers read whatever lies behind a handle: who hands in one that is gone must not get away with it here. */
PoolPointer stateOf(Pool pool) {
  auto found = pools.find(pool);
  if (found == pools.end()) {
    static const char kWords[] = "the fake driver was given a pool that is gone\n";
    if (write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) _exit(98);
    _exit(99);
  }
  return found->second;
}

void trim(PoolState& pool, uint64_t keep) {
  const uint64_t wanted = stepped(pool.used > keep ? pool.used : keep);
  if (wanted >= pool.reserved) return;
  if (pool.device >= 0) take(pool.device, -static_cast<int64_t>(pool.reserved - wanted));
  pool.reserved = wanted;
}

Result allocateFrom(const PoolPointer& from, Address* address, size_t size) {
  PoolState& pool = *from;
  if (capturing) {
    return *address = captureAllocation(pool.device, size), 0;
  }
  if (size > (1ULL << 60)) return 2;
  // FAKE_PIECES: what is idle in a pool lies in pieces that are of no use for anything new.
  const bool pieces = getenv("FAKE_PIECES") != nullptr;
  if (pieces || pool.used + size > pool.reserved) {
    const uint64_t grow = stepped(pieces ? size : pool.used + size - pool.reserved);
    if (pool.device >= 0 && !take(pool.device, static_cast<int64_t>(grow))) return 2;
    pool.reserved += grow;
  }
  pool.used += size;
  *address = newName(size);
  asyncBlocks[*address] = {size, from};
  return 0;
}

}  // namespace

void forgetPools(int device) {
  for (auto at = pools.begin(); at != pools.end();) {
    PoolState& pool = *at->second;
    if (pool.device != device) {
      ++at;
      continue;
    }
    for (auto block = asyncBlocks.begin(); block != asyncBlocks.end();) {
      block = block->second.second == at->second ? asyncBlocks.erase(block) : ++block;
    }
    pool.used = 0;
    trim(pool, 0);
    if (pool.builtIn) {
      ++at;
      continue;
    }
    at = pools.erase(at);
  }
  currents[device] = defaults[device];
}

}  // namespace fake

API cuDeviceGetMemPool(Pool* pool, Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = currentPool(device), 0;
}
API cuDeviceGetDefaultMemPool(Pool* pool, Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = defaultPool(device), 0;
}
API cuDeviceSetMemPool(Device device, Pool pool) {
  std::lock_guard<std::mutex> lock(mutex);
  currentPool(device);
  return currents[device] = pool, 0;
}
#ifndef FAKE_OLD
API cuMemGetDefaultMemPool(Pool* pool, Location* location, int) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = location->type == kLocationDevice ? defaultPool(location->id) : hostPool(), 0;
}
API cuMemGetMemPool(Pool* pool, Location* location, int) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = location->type == kLocationDevice ? currentPool(location->id) : hostPool(), 0;
}
#endif
API cuMemPoolCreate(Pool* pool, const PoolProps* props) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = makePool(props->location.type == kLocationDevice ? props->location.id : -1, false), 0;
}
API cuMemPoolImportFromShareableHandle(Pool* pool, void*, int, unsigned long long) {
  std::lock_guard<std::mutex> lock(mutex);
  return *pool = makePool(-1, false), 0;
}
API cuMemPoolDestroy(Pool pool) {
  FAULT("cuMemPoolDestroy");
  std::lock_guard<std::mutex> lock(mutex);
  const PoolPointer gone = stateOf(pool);
  pools.erase(pool);
  gone->destroyed = true;
  trim(*gone, 0);
  return 0;
}
API cuMemPoolTrimTo(Pool pool, size_t keep) {
  UNSAFE_IN_CAPTURE();
  std::lock_guard<std::mutex> lock(mutex);
  trim(*stateOf(pool), keep);
  return 0;
}
API cuMemPoolGetAttribute(Pool pool, int attribute, void* value) {
  FAULT("cuMemPoolGetAttribute");
  UNSAFE_IN_CAPTURE();
  std::lock_guard<std::mutex> lock(mutex);
  const PoolPointer asked = stateOf(pool);
  *static_cast<uint64_t*>(value) = attribute == kPoolReservedCurrent ? asked->reserved
                                   : attribute == kPoolUsedCurrent   ? asked->used
                                                                     : 0;
  return 0;
}

API cuMemAllocAsync(Address* address, size_t size, Stream) {
  FAULT("cuMemAllocAsync");
  std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  return currentDevice(&device) ? allocateFrom(stateOf(currentPool(device)), address, size) : 201;
}
API cuMemAllocAsync_ptsz(Address* address, size_t size, Stream stream) {
  return cuMemAllocAsync(address, size, stream);
}
API cuMemAllocFromPoolAsync(Address* address, size_t size, Pool pool, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return allocateFrom(stateOf(pool), address, size);
}
API cuMemAllocFromPoolAsync_ptsz(Address* address, size_t size, Pool pool, Stream stream) {
  return cuMemAllocFromPoolAsync(address, size, pool, stream);
}
API cuMemFreeAsync(Address address, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (capturing) return captureFree(address), 0;
  auto found = asyncBlocks.find(address);
  if (found == asyncBlocks.end()) return 1;
  const auto [size, pool] = found->second;
  asyncBlocks.erase(found);
  pool->used -= size;
  if (pool->destroyed) trim(*pool, 0);
  return 0;
}
API cuMemFreeAsync_ptsz(Address address, Stream stream) { return cuMemFreeAsync(address, stream); }
