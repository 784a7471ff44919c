#include "pools.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "calls.h"
#include "pool_list.h"
#include "table.h"

namespace oomtune::cuda {

namespace {

using account::Place;

struct Known {
  Pool pool;
  Place place;
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
  const Relaxed relaxed;
  *value = 0;
  return driver.poolGetAttribute != nullptr && driver.poolGetAttribute(pool, which, value) == kSuccess;
}

void countTo(Place place, Kind kind, uint64_t* counted, uint64_t now) {
  if (now > *counted) account::add(place, kind, now - *counted);
  if (now < *counted) account::release(place, kind, *counted - now);
  *counted = now;
}

/** What a pool has given back. Growth is counted by the call that made it, which has promised it already. */
void countShrinking(Known& at) {
  uint64_t reserved = 0;
  if (attribute(at.pool, kPoolReservedCurrent, &reserved) && reserved < at.counted) {
    countTo(at.place, at.kind, &at.counted, reserved);
  }
}

/** False: there are no graphs with memory, or the driver does not say. */
bool readGraphs(Place place, uint64_t* reserved) {
  const Device ordinal = account::ordinalOf(place);
  *reserved = 0;
  return graphs[place].load(std::memory_order_relaxed) && ordinal >= 0 &&
         driver.deviceGetGraphMemAttribute != nullptr &&
         driver.deviceGetGraphMemAttribute(ordinal, kGraphReservedCurrent, reserved) == kSuccess;
}

void refreshGraphs(Place place) {
  uint64_t reserved = 0;
  if (readGraphs(place, &reserved)) countTo(place, kGraph, &graphCounted[place], reserved);
}

}  // namespace

void knowPool(Pool pool, Place place, Origin origin, Kind kind) {
  if (pool == nullptr) return;
  Lock lock(mutex);
  if (find(pool) != nullptr) return;
  if (!keep(Known{pool, place, origin, kind, 0})) account::blind(kBlindHook);
}

Place placeOfPool(Pool pool) {
  Lock lock(mutex);
  const Known* at = find(pool);
  return at != nullptr ? at->place : kUnknownPool;
}

bool takePool(Pool pool, LeavingPool* out) {
  Lock lock(mutex);
  Known* at = find(pool);
  if (at == nullptr) return false;
  *out = LeavingPool{at->place, at->origin, at->kind, at->counted, 0};
  if (at->place >= 0 && !attribute(pool, kPoolUsedCurrent, &out->used)) out->used = at->counted;
  drop(at);
  return true;
}

void poolGone(const LeavingPool& pool) {
  const uint64_t kept = pool.used < pool.counted ? pool.used : pool.counted;
  if (pool.counted > kept) account::release(pool.place, pool.kind, pool.counted - kept);
  if (kept > 0) account::handOver(pool.place, pool.kind, kept);
}

void poolStays(Pool pool, const LeavingPool& leaving) {
  Lock lock(mutex);
  if (!keep(Known{pool, leaving.place, leaving.origin, leaving.kind, leaving.counted})) account::blind(kBlindHook);
}

void forgetPoolsOn(Place place) {
  Lock lock(mutex);
  for (int i = 0; i < count;) {
    Known& at = known[i];
    if (at.place != place || at.origin == Origin::kBuiltIn) {
      ++i;
      continue;
    }
    countTo(place, at.kind, &at.counted, 0);
    drop(&at);
  }
}

bool countGrowth(Pool pool, Place place, uint64_t promised) {
  Gate& gate = account::gate();
  Lock lock(mutex);
  Known* at = find(pool);
  uint64_t reserved = 0;
  if (at == nullptr || at->place != place || !attribute(pool, kPoolReservedCurrent, &reserved)) {
    gate.cancel(place, promised);
    account::blind(kBlindHook);
    return true;
  }
  const uint64_t grown = reserved > at->counted ? reserved - at->counted : 0;
  growths.fetch_or(grown, std::memory_order_relaxed);
  // The promise becomes what is counted: at no moment does the sum hold both.
  if (grown > promised && !gate.reserve(place, grown - promised, "", false)) return false;
  if (grown < promised) gate.cancel(place, promised - grown);
  if (grown > 0) gate.commit(place, at->kind, grown);
  if (reserved < at->counted) account::release(place, at->kind, at->counted - reserved);
  at->counted = reserved;
  return true;
}

void refreshPool(Pool pool) {
  Lock lock(mutex);
  Known* at = find(pool);
  uint64_t reserved = 0;
  if (at == nullptr || at->place < 0 || !attribute(pool, kPoolReservedCurrent, &reserved)) return;
  countTo(at->place, at->kind, &at->counted, reserved);
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

void refreshPools(Place place) {
  const Relaxed relaxed;
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].place == place) countShrinking(known[i]);
  }
  refreshGraphs(place);
}

bool trimPools(Place place) {
  const Relaxed relaxed;
  Lock lock(mutex);
  bool freed = false;
  for (int i = 0; i < count; ++i) {
    if (known[i].place != place || driver.poolTrimTo == nullptr) continue;
    const uint64_t before = known[i].counted;
    driver.poolTrimTo(known[i].pool, 0);
    countShrinking(known[i]);
    freed = freed || known[i].counted < before;
  }
  return freed;
}

void watchGraphs(Place place) {
  if (place >= 0) graphs[place].store(true);
}

uint64_t graphsReserved(Place place) {
  const Relaxed relaxed;
  Lock lock(mutex);
  refreshGraphs(place);
  return graphCounted[place];
}

void countGraphs(Place place, uint64_t promised) {
  const Relaxed relaxed;
  Gate& gate = account::gate();
  Lock lock(mutex);
  uint64_t reserved = 0;
  uint64_t& counted = graphCounted[place];
  const bool read = readGraphs(place, &reserved);
  const uint64_t grown = read && reserved > counted ? reserved - counted : 0;
  // As with pools the promise becomes what is counted.
  const uint64_t kept = grown < promised ? grown : promised;
  if (promised > kept) gate.cancel(place, promised - kept);
  if (kept > 0) gate.commit(place, kGraph, kept);
  counted += kept;
  if (read) countTo(place, kGraph, &counted, reserved);
}

void forgetPools() {
  mutex = PTHREAD_MUTEX_INITIALIZER;
  known = firstPools;  // not unmapped: a thread of the parent may have been half way through a growth
  capacity = kFirstPools;
  count = 0;
  for (uint32_t place = 0; place < kDevices; ++place) {
    graphs[place].store(false);
    graphCounted[place] = 0;
  }
}

}  // namespace oomtune::cuda
