#include "account.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include <atomic>

#include "driver.h"
#include "graph_hooks.h"
#include "measure.h"
#include "pools.h"
#include "real.h"
#include "table.h"
#include "tables.h"
#include "watch.h"

namespace oomtune::cuda::account {

namespace {

constexpr uint64_t kMiB = 1ULL << 20;

Gate theGate;
std::atomic<bool> begun{false};
pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
std::atomic<int> underWay{0};

enum Lineage : int { kOwn, kForked, kAnew };
std::atomic<int> lineage{kOwn};

void afterFork() {
  // Cheap, as most children only call exec: the slot is taken when the child first counts something.
  lineage.store(kForked);
}

/** The last look: what the process held besides may have grown since its last allocation. */
void atEnd() {
  if (lineage.load() != kOwn) return;
  for (Place place = 1; place < static_cast<Place>(kDevices); ++place) {
    if (theGate.overhead(place) != 0) measureAtEnd(place);
  }
}

/** In a forked child, by whichever of its threads is first; the others wait. */
void startAnew() {
  int expected = kForked;
  if (lineage.compare_exchange_strong(expected, kAnew)) {
    beginning = PTHREAD_MUTEX_INITIALIZER;
    underWay.store(0);
    theGate.forked();
    forgetTables();
    forgetPools();
    forgetGraphs();
    forgetMeasurements();
    lineage.store(kOwn, std::memory_order_release);
  }
  while (lineage.load(std::memory_order_acquire) != kOwn) sched_yield();
}

}  // namespace

void begin() {
  if (begun.load(std::memory_order_acquire)) return;
  Lock lock(beginning);
  if (begun.load()) return;
  const char* path = getenv("OOMTUNE_LEDGER");
  if (path != nullptr && path[0] != '\0') {
    if (theGate.attach(path)) {
      pthread_atfork(nullptr, nullptr, afterFork);
      learnDevices();
      atexit(atEnd);
    } else {
      debugLine("the ledger %s cannot be used: nothing is counted", path);
    }
  }
  begun.store(true, std::memory_order_release);
}

Gate& gate() {
  if (__builtin_expect(lineage.load(std::memory_order_acquire) != kOwn, 0)) startAnew();
  return theGate;
}

uint64_t physical(uint64_t size) {
  if (size <= kMiB || size > UINT64_MAX - 2 * kMiB) return size;  // nothing is that large: the driver will say so
  return (size + 2 * kMiB - 1) & ~(2 * kMiB - 1);
}

bool admit(Place place, uint64_t size, const char* api) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return true;
  const uint64_t left = gate.available(place);
  bool fresh = false;
  if (left == kNoBudget || left / 2 > size / 2 + 512 * kMiB) {
    fresh = measureOften(place, 1000);
  } else if (left / 2 > size / 2 + 32 * kMiB) {
    fresh = measureOften(place);
  } else {
    measureNow(place);
    fresh = true;
  }
  if (size == 0 || gate.reserve(place, size, api, false)) return true;
  // As the driver does before it gives up: what its pools only keep for later goes back first.
  bool freed = trimPools(place);
  if (freed || !fresh) measureNow(place);
  return gate.reserve(place, size, api, true);
}

void settle(Place place, Kind kind, uint64_t size, Result result, const char* api) {
  Gate& gate = account::gate();
  if (place < 0) return;
  if (result == kSuccess) {
    gate.commit(place, kind, size);
    return;
  }
  gate.cancel(place, size);
  if (result == kOutOfMemory) gate.refuse(place, size, api, kByDriver);
}

void add(Place place, Kind kind, uint64_t size) {
  if (place >= 0) gate().add(place, kind, size);
}

void release(Place place, Kind kind, uint64_t size) {
  if (place < 0) return;
  if (place != static_cast<Place>(kHostDevice)) noteFreed(place);
  gate().release(place, kind, size);
}

void handOver(Place place, Kind kind, uint64_t size) {
  if (place < 0) return;
  // Without figures it would stay charged for good.
  if (gate().ledger()->devices[place].measured.load() == kMeasuredNot) release(place, kind, size);
  else gate().handOver(place, kind, size);
}

void refused(Place place, uint64_t size, const char* api, RefusedBy by) {
  if (place >= 0) gate().refuse(place, size, api, by);
}

Unsettled::Unsettled() { underWay.fetch_add(1); }
Unsettled::~Unsettled() { underWay.fetch_sub(1); }
bool unsettled() { return underWay.load() != 0; }

void blind(Blind reason) { gate().markBlind(reason); }

void measure(Place place) {
  if (place >= 0) measureNow(place);
}

void refresh(Place place) {
  if (place >= 0) measureOften(place);
}

bool overBudget(Place place) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return false;
  const uint64_t budget = gate.budget(place);
  return budget != kNoBudget && gate.ledger()->devices[place].committed.load() > budget;
}

uint64_t available(Place place) { return place >= 0 ? gate().available(place) : kNoBudget; }

}  // namespace oomtune::cuda::account
