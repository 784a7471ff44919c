#include "measure.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include "process.h"
#include "pools.h"
#include "real.h"
#include "table.h"
#include "usage.h"

namespace oomtune::cuda {

namespace {

using account::Place;

constexpr uint64_t kGiB = 1ULL << 30;
// Contexts, modules, NCCL and eagerly loaded kernels stay well below this; more means allocations that no hook saw.
constexpr uint64_t kUnseen = 4 * kGiB;
// NVML shows freed memory as used for a moment longer (seen on an H200 with driver 580): an overhead that seems to have
// grown within so many milliseconds of a free is not believed at once. After half a second of such doubt it is looked at
// again and again, half a millisecond apart.
constexpr uint64_t kFreeShows = 20;
constexpr uint64_t kDoubt = 500;
constexpr int kFreeWaits = 20;
// The inode of the first pid namespace, in which NVML's pids are ours (PROC_PID_INIT_INO of the kernel).
constexpr uint64_t kFirstPidNamespace = 4026531836ULL;

struct Watch {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  NvmlDevice nvml = nullptr;
  bool pidIsOurs = false;     // NVML's figure for our pid is really ours
  bool pidWasThere = false;   // a figure for our pid before we had a context: another process's
  bool hadContext = false;
  uint64_t deviceBase = 0;    // bytes in use on the whole device before our first context
  std::atomic<bool> measuring{false};
  std::atomic<uint64_t> measuredAt{0};
  std::atomic<uint64_t> costMicroseconds{1000};
  std::atomic<uint64_t> freedAt{0};  // milliseconds; 0: nothing was
  uint64_t doubtSince = 0;           // milliseconds; 0: no doubt
  std::atomic<uint64_t> importedSeen{0};
  int importsUnseen = 0;  // imports so far that did not show in our figure
};

Watch watches[kDevices];

uint64_t microseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

uint64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000 + 1;
}

uint64_t less(uint64_t from, uint64_t what) { return from > what ? from - what : 0; }

/** What the hooks have counted for this process. */
uint64_t hookedNow(Place place) {
  Gate& gate = account::gate();
  const SlotDevice& own = gate.ledger()->slots[gate.slotIndex()].devices[place];
  return less(own.live.load(), own.overhead.load());
}

bool holdsManaged(Place place) {
  Gate& gate = account::gate();
  return gate.ledger()->slots[gate.slotIndex()].devices[place].kinds[kManaged].load() != 0;
}

bool aloneOnDevice(Place place) {
  Gate& gate = account::gate();
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (i == gate.slotIndex() || gate.ledger()->keys[i].pid.load() == 0) continue;
    if (gate.ledger()->slots[i].devices[place].committed.load() != 0) return false;
  }
  return true;
}

/** This process's bytes on the device, by whichever figure can be had. */
bool usedNow(Watch& watch, Place place, uint64_t* used) {
  const Figure figure = nvmlProcessBytes(watch.nvml, currentPid(), used);
  if (figure == Figure::kFound && !watch.pidIsOurs) {
    watch.pidIsOurs = currentPidNamespace() == kFirstPidNamespace || (watch.hadContext && !watch.pidWasThere);
  }
  if (watch.pidIsOurs) return figure != Figure::kUnknown;  // absent: no context any more
  uint64_t device = 0;
  if (!watch.hadContext || !aloneOnDevice(place) || !nvmlDeviceBytes(watch.nvml, &device)) return false;
  *used = device > watch.deviceBase ? device - watch.deviceBase : 0;
  // A neighbour's memory looks like ours in this figure: believe it only as far as contexts can go.
  return *used <= hookedNow(place) + kUnseen;
}

/** What this process holds besides, seen now; false: there is no figure, or none at a moment when nothing moved. */
bool look(Watch& watch, Place place, uint64_t old, uint64_t* overhead) {
  refreshPools(place);
  for (int attempt = 0; attempt < 4; ++attempt) {
    uint64_t used = 0;
    const uint64_t before = hookedNow(place);
    bool moved = account::unsettled();
    if (!usedNow(watch, place, &used)) return false;
    moved = moved || account::unsettled() || hookedNow(place) != before;
    if (moved) continue;
    *overhead = less(less(used, watch.importedSeen.load()), before);
    // Managed memory moves between host and device: it must not make the rest look smaller than it was.
    if (*overhead < old && holdsManaged(place)) *overhead = old;
    return true;
  }
  return false;
}

bool freedLately(const Watch& watch) {
  const uint64_t at = watch.freedAt.load(std::memory_order_relaxed);
  return at != 0 && milliseconds() - at <= kFreeShows;
}

void measureLocked(Watch& watch, Place place) {
  Gate& gate = account::gate();
  const uint64_t old = gate.overhead(place);
  uint64_t overhead = 0;
  if (!look(watch, place, old, &overhead)) return;
  if (overhead > old && freedLately(watch)) {
    // Where memory is freed all the time the doubt would never end: then wait it out, now and again.
    const uint64_t now = milliseconds();
    if (watch.doubtSince == 0) watch.doubtSince = now;
    if (now - watch.doubtSince < kDoubt) return;
    for (int wait = 0; wait < kFreeWaits && overhead > old; ++wait) {
      const timespec pause{0, 500000};
      nanosleep(&pause, nullptr);
      if (!look(watch, place, old, &overhead)) return;
    }
  }
  watch.doubtSince = 0;
  if (overhead != old) gate.setOverhead(place, overhead);
  if (overhead > kUnseen) {
    gate.markBlind(kBlindUnseen);
    debugLine("%llu bytes on the device were not seen by the hooks", static_cast<unsigned long long>(overhead));
  }
}

}  // namespace

void watchDevice(Place place, const char* bus, const char* mig) {
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  watch.nvml = nvmlDevice(bus, mig);
  uint64_t used = 0;
  watch.pidWasThere = nvmlProcessBytes(watch.nvml, currentPid(), &used) == Figure::kFound;
  if (watch.nvml == nullptr) debugLine("NVML does not know device %s: contexts are not counted", bus);
}

void beforeContext(Place place) {
  if (place < 0 || !account::gate().attached()) return;
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  if (watch.hadContext) return;
  watch.hadContext = true;
  nvmlDeviceBytes(watch.nvml, &watch.deviceBase);
}

void measureContext(Place place) {
  if (place < 0 || !account::gate().attached()) return;
  watches[place].freedAt.store(0);  // what grew is the context: no doubt about it
  measureNow(place);
}

void measureNow(Place place) {
  if (!account::gate().attached()) return;
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  const uint64_t begin = microseconds();
  watch.measuring.store(true);
  measureLocked(watch, place);
  watch.measuring.store(false);
  watch.costMicroseconds.store(microseconds() - begin, std::memory_order_relaxed);
  watch.measuredAt.store(milliseconds(), std::memory_order_relaxed);
}

void noteFreed(Place place) { watches[place].freedAt.store(milliseconds(), std::memory_order_relaxed); }

bool measureIfOlder(Place place, uint64_t age) {
  if (!account::gate().attached()) return false;
  Watch& watch = watches[place];
  uint64_t last = watch.measuredAt.load(std::memory_order_relaxed);
  uint64_t now = milliseconds();
  if (now - last < age) return false;
  // One thread is enough.
  if (!watch.measuredAt.compare_exchange_strong(last, now)) return false;
  measureNow(place);
  return true;
}

bool measureOften(Place place, unsigned times) {
  return measureIfOlder(place, watches[place].costMicroseconds.load(std::memory_order_relaxed) * times / 1000 + 1);
}

void measureAtEnd(Place place) {
  Watch& watch = watches[place];
  if (!watch.measuring.load()) measureNow(place);  // no trylock: older glibcs have it in libpthread alone
}

uint64_t beforeImport(Place place) {
  uint64_t used = 0;
  if (place < 0 || !account::gate().attached()) return 0;
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  // Asking takes a while, and programs import by the hundred: once it is clear that nothing shows, stop.
  if (watch.importsUnseen >= 4) return 0;
  return watch.pidIsOurs && nvmlProcessBytes(watch.nvml, currentPid(), &used) == Figure::kFound ? used : 0;
}

uint64_t afterImport(Place place, uint64_t before, uint64_t size) {
  uint64_t used = 0;
  if (place < 0 || before == 0) return 0;
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  if (nvmlProcessBytes(watch.nvml, currentPid(), &used) != Figure::kFound || used <= before) {
    ++watch.importsUnseen;
    return 0;
  }
  uint64_t seen = size == 0 ? used - before : used - before < account::physical(size) ? used - before : account::physical(size);
  watch.importedSeen.fetch_add(seen);
  return seen;
}

void importGone(Place place, uint64_t seen) {
  if (place >= 0) watches[place].importedSeen.fetch_sub(seen);
}

void forgetMeasurements() {
  nvmlForked();
  for (Watch& watch : watches) {
    watch.mutex = PTHREAD_MUTEX_INITIALIZER;
    watch.pidIsOurs = false;
    watch.pidWasThere = false;
    watch.hadContext = false;
    watch.measuring.store(false);
    watch.measuredAt.store(0);
    watch.freedAt.store(0);
    watch.doubtSince = 0;
    watch.importedSeen.store(0);
  }
}

}  // namespace oomtune::cuda
