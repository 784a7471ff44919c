#include "watch.h"

#include <time.h>

#include "process.h"
#include "real.h"
#include "slots.h"
#include "table.h"

namespace oomtune::cuda {

namespace {

using account::Place;

// The inode of the first pid namespace, in which NVML's pids are ours (PROC_PID_INIT_INO of the kernel).
constexpr uint64_t kFirstPidNamespace = 4026531836ULL;
// For another process's turn to end: half a millisecond each.
constexpr int kAttempts = 40;

Watch watches[kDevices];
std::atomic<bool> inChild{false};

DeviceEntry& entryOf(Place place) { return account::gate().ledger()->devices[place]; }

/** The whole device's bytes, less what stood there before the launch and what its other processes account for. */
bool usedByDevice(Watch& watch, Place place, uint64_t* used, bool* moved) {
  DeviceEntry& entry = entryOf(place);
  Gate& gate = account::gate();
  const uint64_t base = entry.base.load();
  if (!watch.hadContext || base == 0) return false;
  // The dead account for nothing any more.
  if (entry.live.load() > gate.live(place)) reapSlots(gate.ledger());
  const uint64_t before = entry.live.load();
  *moved = entry.committed.load() != before;
  uint64_t device = 0;
  if (!nvmlDeviceBytes(watch.nvml, &device)) return false;
  const uint64_t own = gate.live(place);
  const uint64_t live = entry.live.load();
  *moved = *moved || live != before || entry.committed.load() != live;
  const uint64_t others = base - 1 + (live > own ? live - own : 0);
  *used = device > others ? device - others : 0;
  return true;
}

/** NVML's figure for this process, and whether it is to be believed. */
Figure identify(Watch& watch, uint64_t* used) {
  const Figure figure = nvmlProcessBytes(watch.nvml, currentPid(), used);
  if (figure == Figure::kFound && !watch.pidIsOurs) {
    watch.pidIsOurs = currentPidNamespace() == kFirstPidNamespace || (watch.hadContext && !watch.pidWasThere);
  }
  return figure;
}

}  // namespace

Watch& watchOf(Place place) { return watches[place]; }

bool watching() { return !inChild.load(std::memory_order_relaxed); }

void watchDevice(Place place, const char* bus, const char* mig) {
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  watch.nvml = nvmlDevice(bus, mig);
  uint64_t used = 0;
  watch.pidWasThere = nvmlProcessBytes(watch.nvml, currentPid(), &used) == Figure::kFound;
  if (watch.nvml == nullptr) debugLine("NVML does not know device %s: contexts are not counted", bus);
}

void beforeContext(Place place) {
  if (place < 0 || !account::gate().attached() || !watching()) return;
  Watch& watch = watches[place];
  Lock lock(watch.mutex);
  if (watch.hadContext) return;
  watch.hadContext = true;
  uint64_t device = 0;
  uint64_t none = 0;
  Cell& base = entryOf(place).base;  // the launch's first process says it for all
  if (base.load() == 0 && nvmlDeviceBytes(watch.nvml, &device)) base.compare_exchange_strong(none, device + 1);
}

uint64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000 + 1;
}

void noteFreed(Place place) {
  Watch& watch = watchOf(place);
  const uint64_t now = milliseconds();
  watch.freedAt.store(now, std::memory_order_relaxed);
  if (!watch.pidIsOurs) account::gate().ledger()->devices[place].freedAt.store(now, std::memory_order_relaxed);
}

uint64_t hookedNow(Place place) {
  Gate& gate = account::gate();
  const SlotDevice& own = gate.ledger()->slots[gate.slotIndex()].devices[place];
  const uint64_t live = own.live.load();
  const uint64_t overhead = own.overhead.load();
  return live > overhead ? live - overhead : 0;
}

uint64_t changesNow() {
  Gate& gate = account::gate();
  return gate.ledger()->slots[gate.slotIndex()].begun.load();
}

Turn::Turn(Watch& watch, Place place) {
  uint64_t used = 0;
  if (!watch.pidIsOurs) identify(watch, &used);
  if (watch.pidIsOurs) return;
  Cell& turn = entryOf(place).measurer;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (takeTurn(turn)) {
      held_ = &turn;
      return;
    }
    const timespec pause{0, 500000};
    nanosleep(&pause, nullptr);
  }
  ours_ = false;
}

Turn::~Turn() {
  if (held_ != nullptr) endTurn(*held_);
}

bool usedNow(Watch& watch, Place place, uint64_t* used, bool* moved) {
  *moved = false;
  const Figure figure = identify(watch, used);
  if (watch.pidIsOurs) {
    if (figure == Figure::kUnknown) return false;  // absent: no context any more
    account::gate().setMeasured(place, kMeasuredByProcess);
    return true;
  }
  if (!usedByDevice(watch, place, used, moved)) return false;
  account::gate().setMeasured(place, kMeasuredByDevice);
  if (!watch.told) {
    watch.told = true;
    debugLine(
        "the driver does not know this process by its pid here (as in a container): what it holds is measured by "
        "the figures of the whole device, which is exact only while no other job is on it");
  }
  return true;
}

void forgetWatches() {
  inChild.store(true);
  for (Watch& watch : watches) {
    watch.mutex = PTHREAD_MUTEX_INITIALIZER;
    watch.pidIsOurs = false;
    watch.pidWasThere = false;
    watch.hadContext = false;
    watch.told = false;
    watch.measuring.store(false);
    watch.measuredAt.store(0);
    watch.freedAt.store(0);
    watch.doubtSince = 0;
    watch.importedSeen.store(0);
    watch.importsUnseen = 0;
  }
}

}  // namespace oomtune::cuda
