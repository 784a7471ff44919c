#include "pools.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "driver_calls.h"
#include "hash_table.h"
#include "known_pools.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

struct Known {
  Pool pool;
  DeviceIndex deviceIndex;
  Origin origin;
  Kind kind;
  uint64_t counted;
};

constexpr int kFirstPools = 256;
constexpr uint64_t kLeastStep = 2ULL << 20;
constexpr uint64_t kLargestStep = 32ULL << 20;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Known firstPools[kFirstPools];
Known* known = firstPools;
int capacity = kFirstPools;
int count = 0;
std::atomic<bool> graphs[kDevices];
uint64_t graphCounted[kDevices];
std::atomic<uint64_t> growths{0};  // all growths of pools seen so far, or'ed: their lowest bit is the step

Known* find(Pool pool) {
  for (int i = 0; i < count; ++i) {
    if (known[i].pool == pool) return &known[i];
  }
  return nullptr;
}

void drop(Known* at) { *at = known[--count]; }

/** Room for one more, under the lock. Its memory comes from mmap, as the tables' does. False: there is none. */
bool keep(const Known& pool) {
  if (count == capacity) {
    const size_t bytes = sizeof(Known) * static_cast<size_t>(capacity);
    void* memory = mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    std::memcpy(memory, known, bytes);
    if (known != firstPools) munmap(known, bytes);
    known = static_cast<Known*>(memory);
    capacity *= 2;
  }
  known[count++] = pool;
  return true;
}

/** False: the driver does not say (it may be shutting down): what was counted stands. */
bool attribute(Pool pool, int which, uint64_t* value) {
  const RelaxedCapture relaxed;
  *value = 0;
  return driver.poolGetAttribute != nullptr && driver.poolGetAttribute(pool, which, value) == kSuccess;
}

void countTo(DeviceIndex deviceIndex, Kind kind, uint64_t* counted, uint64_t now) {
  if (now > *counted) account::add(deviceIndex, kind, now - *counted);
  if (now < *counted) account::release(deviceIndex, kind, *counted - now);
  *counted = now;
}

/** Counts what a pool has given back. Growth is counted by the call that caused it, which has promised it. */
void countShrinking(Known& at) {
  uint64_t reserved = 0;
  if (attribute(at.pool, kPoolReservedCurrent, &reserved) && reserved < at.counted) {
    countTo(at.deviceIndex, at.kind, &at.counted, reserved);
  }
}

/** False: there are no graphs with memory, or the driver does not tell. */
bool readGraphs(DeviceIndex deviceIndex, uint64_t* reserved) {
  const Device ordinal = account::ordinalOf(deviceIndex);
  *reserved = 0;
  return graphs[deviceIndex].load(std::memory_order_relaxed) && ordinal >= 0 &&
         driver.deviceGetGraphMemAttribute != nullptr &&
         driver.deviceGetGraphMemAttribute(ordinal, kGraphReservedCurrent, reserved) == kSuccess;
}

void refreshGraphs(DeviceIndex deviceIndex) {
  uint64_t reserved = 0;
  if (readGraphs(deviceIndex, &reserved)) countTo(deviceIndex, kGraph, &graphCounted[deviceIndex], reserved);
}

}  // namespace

void knowPool(Pool pool, DeviceIndex deviceIndex, Origin origin, Kind kind) {
  if (pool == nullptr) return;
  Lock lock(mutex);
  if (find(pool) != nullptr) return;
  if (!keep(Known{pool, deviceIndex, origin, kind, 0})) account::markBlind(kBlindHook);
}

DeviceIndex deviceIndexOfPool(Pool pool) {
  Lock lock(mutex);
  const Known* at = find(pool);
  return at != nullptr ? at->deviceIndex : kUnknownPool;
}

bool takePool(Pool pool, LeavingPool* out) {
  Lock lock(mutex);
  Known* at = find(pool);
  if (at == nullptr) return false;
  *out = LeavingPool{at->deviceIndex, at->origin, at->kind, at->counted, 0};
  if (at->deviceIndex >= 0 && !attribute(pool, kPoolUsedCurrent, &out->used)) out->used = at->counted;
  drop(at);
  return true;
}

void poolGone(const LeavingPool& pool) {
  const uint64_t kept = pool.used < pool.counted ? pool.used : pool.counted;
  if (pool.counted > kept) account::release(pool.deviceIndex, pool.kind, pool.counted - kept);
  if (kept > 0) account::handOver(pool.deviceIndex, pool.kind, kept);
}

void poolStays(Pool pool, const LeavingPool& leaving) {
  Lock lock(mutex);
  if (!keep(Known{pool, leaving.deviceIndex, leaving.origin, leaving.kind, leaving.counted}))
    account::markBlind(kBlindHook);
}

void forgetPoolsOn(DeviceIndex deviceIndex) {
  Lock lock(mutex);
  for (int i = 0; i < count;) {
    Known& at = known[i];
    if (at.deviceIndex != deviceIndex || at.origin == Origin::kBuiltIn) {
      ++i;
      continue;
    }
    countTo(deviceIndex, at.kind, &at.counted, 0);
    drop(&at);
  }
}

bool countGrowth(Pool pool, DeviceIndex deviceIndex, uint64_t promised) {
  BudgetGate& gate = account::gate();
  Lock lock(mutex);
  Known* at = find(pool);
  uint64_t reserved = 0;
  if (at == nullptr || at->deviceIndex != deviceIndex || !attribute(pool, kPoolReservedCurrent, &reserved)) {
    gate.cancel(deviceIndex, promised);
    account::markBlind(kBlindHook);
    return true;
  }
  const uint64_t grown = reserved > at->counted ? reserved - at->counted : 0;
  growths.fetch_or(grown, std::memory_order_relaxed);
  // Turns the promise into counted bytes: the sum never holds both.
  if (grown > promised && !gate.reserve(deviceIndex, grown - promised, "", false)) return false;
  if (grown < promised) gate.cancel(deviceIndex, promised - grown);
  if (grown > 0) gate.commit(deviceIndex, at->kind, grown);
  if (reserved < at->counted) account::release(deviceIndex, at->kind, at->counted - reserved);
  at->counted = reserved;
  return true;
}

void refreshPool(Pool pool) {
  Lock lock(mutex);
  Known* at = find(pool);
  uint64_t reserved = 0;
  if (at == nullptr || at->deviceIndex < 0 || !attribute(pool, kPoolReservedCurrent, &reserved)) return;
  countTo(at->deviceIndex, at->kind, &at->counted, reserved);
}

uint64_t growthFor(Pool pool, uint64_t size) {
  uint64_t reserved = 0;
  uint64_t used = 0;
  attribute(pool, kPoolReservedCurrent, &reserved);
  attribute(pool, kPoolUsedCurrent, &used);
  if (reserved >= used && reserved - used >= size) return 0;
  // What is idle is rarely where it could be used together with what is new: the pool grows by the whole size, in the
  // steps in which it has been seen to grow.
  const uint64_t seen = growths.load(std::memory_order_relaxed);
  const uint64_t lowest = seen & (~seen + 1);
  const uint64_t step = lowest == 0 || lowest > kLargestStep ? kLargestStep : lowest < kLeastStep ? kLeastStep : lowest;
  return size > UINT64_MAX - step ? size : (size + step - 1) & ~(step - 1);
}

void refreshPools(DeviceIndex deviceIndex) {
  const RelaxedCapture relaxed;
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].deviceIndex == deviceIndex) countShrinking(known[i]);
  }
  refreshGraphs(deviceIndex);
}

bool trimPools(DeviceIndex deviceIndex) {
  const RelaxedCapture relaxed;
  Lock lock(mutex);
  bool freed = false;
  for (int i = 0; i < count; ++i) {
    if (known[i].deviceIndex != deviceIndex || driver.poolTrimTo == nullptr) continue;
    const uint64_t before = known[i].counted;
    driver.poolTrimTo(known[i].pool, 0);
    countShrinking(known[i]);
    freed = freed || known[i].counted < before;
  }
  return freed;
}

void watchGraphs(DeviceIndex deviceIndex) {
  if (deviceIndex >= 0) graphs[deviceIndex].store(true);
}

uint64_t graphsReserved(DeviceIndex deviceIndex) {
  const RelaxedCapture relaxed;
  Lock lock(mutex);
  refreshGraphs(deviceIndex);
  return graphCounted[deviceIndex];
}

void countGraphs(DeviceIndex deviceIndex, uint64_t promised) {
  const RelaxedCapture relaxed;
  BudgetGate& gate = account::gate();
  Lock lock(mutex);
  uint64_t reserved = 0;
  uint64_t& counted = graphCounted[deviceIndex];
  const bool read = readGraphs(deviceIndex, &reserved);
  const uint64_t grown = read && reserved > counted ? reserved - counted : 0;
  // As with pools, turns the promise into counted bytes.
  const uint64_t kept = grown < promised ? grown : promised;
  if (promised > kept) gate.cancel(deviceIndex, promised - kept);
  if (kept > 0) gate.commit(deviceIndex, kGraph, kept);
  counted += kept;
  if (read) countTo(deviceIndex, kGraph, &counted, reserved);
}

void forgetPools() {
  mutex = PTHREAD_MUTEX_INITIALIZER;
  known = firstPools;  // not unmapped: a thread of the parent may have been half way through a growth
  capacity = kFirstPools;
  count = 0;
  for (uint32_t deviceIndex = 0; deviceIndex < kDevices; ++deviceIndex) {
    graphs[deviceIndex].store(false);
    graphCounted[deviceIndex] = 0;
  }
}

}  // namespace oomtune::cuda
