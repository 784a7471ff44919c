#include "pools.h"

#include <atomic>

#include "driver.h"
#include "pool_list.h"
#include "table.h"

namespace oomtune::cuda {

namespace {

using account::Place;

struct Known {
  Pool pool;
  Place place;
  uint64_t counted;
};

constexpr int kPools = 256;
constexpr uint64_t kLeastStep = 2ULL << 20;
constexpr uint64_t kLargestStep = 32ULL << 20;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Known known[kPools];
int count = 0;
std::atomic<bool> graphs[kDevices];
uint64_t graphCounted[kDevices];
std::atomic<uint64_t> growths{0};  // all growths of pools seen so far, or'ed: their lowest bit is the step

uint64_t attribute(Pool pool, int which) {
  uint64_t value = 0;
  if (driver.poolGetAttribute == nullptr || driver.poolGetAttribute(pool, which, &value) != kSuccess) return 0;
  return value;
}

void countTo(Place place, Kind kind, uint64_t* counted, uint64_t now) {
  if (now > *counted) account::add(place, kind, now - *counted);
  if (now < *counted) account::release(place, kind, *counted - now);
  *counted = now;
}

/** What a pool has given back. Growth is counted by the call that made it, which has promised it already. */
void countShrinking(Known& at) {
  const uint64_t reserved = attribute(at.pool, kPoolReservedCurrent);
  if (reserved < at.counted) countTo(at.place, kAsync, &at.counted, reserved);
}

void refreshGraphs(Place place) {
  const Device ordinal = account::ordinalOf(place);
  if (!graphs[place].load(std::memory_order_relaxed) || ordinal < 0 || driver.deviceGetGraphMemAttribute == nullptr) {
    return;
  }
  uint64_t reserved = 0;
  if (driver.deviceGetGraphMemAttribute(ordinal, kGraphReservedCurrent, &reserved) != kSuccess) return;
  countTo(place, kGraph, &graphCounted[place], reserved);
}

}  // namespace

void knowPool(Pool pool, Place place) {
  if (pool == nullptr) return;
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].pool == pool) return;
  }
  if (count < kPools) known[count++] = Known{pool, place, 0};
  else account::blind(kBlindHook);
}

void forgetPool(Pool pool) {
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].pool != pool) continue;
    countTo(known[i].place, kAsync, &known[i].counted, 0);
    known[i] = known[--count];
    return;
  }
}

bool countGrowth(Pool pool, uint64_t promised) {
  Gate& gate = account::gate();
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    Known& at = known[i];
    if (at.pool != pool || at.place < 0) continue;
    const uint64_t reserved = attribute(pool, kPoolReservedCurrent);
    const uint64_t grown = reserved > at.counted ? reserved - at.counted : 0;
    growths.fetch_or(grown, std::memory_order_relaxed);
    // The promise becomes what is counted: at no moment does the sum hold both.
    if (grown > promised && !gate.reserve(at.place, grown - promised, "", false)) return false;
    if (grown < promised) gate.cancel(at.place, promised - grown);
    if (grown > 0) gate.commit(at.place, kAsync, grown);
    if (reserved < at.counted) account::release(at.place, kAsync, at.counted - reserved);
    at.counted = reserved;
    return true;
  }
  return true;
}

void refreshPool(Pool pool) {
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].pool != pool || known[i].place < 0) continue;
    countTo(known[i].place, kAsync, &known[i].counted, attribute(pool, kPoolReservedCurrent));
  }
}

Place placeOfPool(Pool pool) {
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].pool == pool) return known[i].place;
  }
  return kUnknownPool;
}

uint64_t growthFor(Pool pool, uint64_t size) {
  const uint64_t reserved = attribute(pool, kPoolReservedCurrent);
  const uint64_t used = attribute(pool, kPoolUsedCurrent);
  if (reserved >= used && reserved - used >= size) return 0;
  // What is idle is rarely where it could be used together with what is new: the pool grows by the whole size, in the
  // steps in which it has been seen to grow.
  const uint64_t seen = growths.load(std::memory_order_relaxed);
  const uint64_t lowest = seen & (~seen + 1);
  const uint64_t step = lowest == 0 || lowest > kLargestStep ? kLargestStep : lowest < kLeastStep ? kLeastStep : lowest;
  return (size + step - 1) & ~(step - 1);
}

void refreshPools(Place place) {
  Lock lock(mutex);
  for (int i = 0; i < count; ++i) {
    if (known[i].place == place) countShrinking(known[i]);
  }
  refreshGraphs(place);
}

bool trimPools(Place place) {
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

void forgetPools() {
  mutex = PTHREAD_MUTEX_INITIALIZER;
  count = 0;
  for (uint32_t place = 0; place < kDevices; ++place) {
    graphs[place].store(false);
    graphCounted[place] = 0;
  }
}

}  // namespace oomtune::cuda
