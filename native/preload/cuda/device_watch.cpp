#include "device_watch.h"

#include <time.h>

#include "hash_table.h"
#include "process.h"
#include "real_library.h"
#include "slots.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

// The inode of the first pid namespace, in which NVML's pids are ours (PROC_PID_INIT_INO of the kernel).
constexpr uint64_t kFirstPidNamespace = 4026531836ULL;
// Waits of half a millisecond each for another process's turn to end.
constexpr int kAttempts = 40;

DeviceWatch watches[kDevices];
std::atomic<bool> inChild{false};

DeviceEntry& entryOf(DeviceIndex deviceIndex) { return account::gate().ledger()->devices[deviceIndex]; }

/** The whole device's bytes, minus those from before the launch and those counted for its other processes. */
bool usedByDevice(DeviceWatch& watch, DeviceIndex deviceIndex, uint64_t* used, bool* moved) {
  DeviceEntry& entry = entryOf(deviceIndex);
  BudgetGate& gate = account::gate();
  const uint64_t base = entry.base.load();
  if (!watch.hadContext || base == 0) return false;
  // Takes back what dead processes held: it is no longer on the device.
  if (entry.live.load() > gate.live(deviceIndex)) reapSlots(gate.ledger());
  const uint64_t before = entry.live.load();
  *moved = entry.committed.load() != before;
  uint64_t device = 0;
  if (!nvmlDeviceBytes(watch.nvml, &device)) return false;
  const uint64_t own = gate.live(deviceIndex);
  const uint64_t live = entry.live.load();
  *moved = *moved || live != before || entry.committed.load() != live;
  const uint64_t others = base - 1 + (live > own ? live - own : 0);
  *used = device > others ? device - others : 0;
  return true;
}

/** NVML's figure for this process; decides whether it can be believed. */
Lookup identify(DeviceWatch& watch, uint64_t* used) {
  const Lookup figure = nvmlProcessBytes(watch.nvml, currentPid(), used);
  if (figure == Lookup::kFound && !watch.pidIsOurs) {
    watch.pidIsOurs = currentPidNamespace() == kFirstPidNamespace || (watch.hadContext && !watch.pidWasThere);
  }
  return figure;
}

}  // namespace

DeviceWatch& watchOf(DeviceIndex deviceIndex) { return watches[deviceIndex]; }

bool watching() { return !inChild.load(std::memory_order_relaxed); }

void watchDevice(DeviceIndex deviceIndex, const char* bus, const char* mig) {
  DeviceWatch& watch = watches[deviceIndex];
  Lock lock(watch.mutex);
  watch.nvml = nvmlDevice(bus, mig);
  uint64_t used = 0;
  watch.pidWasThere = nvmlProcessBytes(watch.nvml, currentPid(), &used) == Lookup::kFound;
  if (watch.nvml == nullptr) debugLine("NVML does not know device %s: contexts are not counted", bus);
}

void beforeContext(DeviceIndex deviceIndex) {
  if (deviceIndex < 0 || !account::gate().attached() || !watching()) return;
  DeviceWatch& watch = watches[deviceIndex];
  Lock lock(watch.mutex);
  if (watch.hadContext) return;
  watch.hadContext = true;
  uint64_t device = 0;
  uint64_t none = 0;
  Cell& base = entryOf(deviceIndex).base;  // the launch's first process sets it for all
  if (base.load() == 0 && nvmlDeviceBytes(watch.nvml, &device)) base.compare_exchange_strong(none, device + 1);
}

uint64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000 + 1;
}

void noteFreed(DeviceIndex deviceIndex) {
  DeviceWatch& watch = watchOf(deviceIndex);
  const uint64_t now = milliseconds();
  watch.freedAt.store(now, std::memory_order_relaxed);
  if (!watch.pidIsOurs) account::gate().ledger()->devices[deviceIndex].freedAt.store(now, std::memory_order_relaxed);
}

uint64_t hookedNow(DeviceIndex deviceIndex) {
  BudgetGate& gate = account::gate();
  const SlotDevice& own = gate.ledger()->slots[gate.slotIndex()].devices[deviceIndex];
  const uint64_t live = own.live.load();
  const uint64_t overhead = own.overhead.load();
  return live > overhead ? live - overhead : 0;
}

uint64_t changesNow() {
  BudgetGate& gate = account::gate();
  return gate.ledger()->slots[gate.slotIndex()].begun.load();
}

MeasureTurn::MeasureTurn(DeviceWatch& watch, DeviceIndex deviceIndex) {
  uint64_t used = 0;
  if (!watch.pidIsOurs) identify(watch, &used);
  if (watch.pidIsOurs) return;
  Cell& turn = entryOf(deviceIndex).measureLock;
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

MeasureTurn::~MeasureTurn() {
  if (held_ != nullptr) endTurn(*held_);
}

bool usedNow(DeviceWatch& watch, DeviceIndex deviceIndex, uint64_t* used, bool* moved) {
  *moved = false;
  const Lookup figure = identify(watch, used);
  if (watch.pidIsOurs) {
    if (figure == Lookup::kUnknown) return false;  // kAbsent: there is no context any more
    account::gate().setMeasured(deviceIndex, kMeasuredByProcess);
    return true;
  }
  if (!usedByDevice(watch, deviceIndex, used, moved)) return false;
  account::gate().setMeasured(deviceIndex, kMeasuredByDevice);
  if (!watch.reported) {
    watch.reported = true;
    debugLine(
        "the driver does not know this process by its pid here (as in a container): what it holds is measured by "
        "the figures of the whole device, which is exact only while no other job is on it");
  }
  return true;
}

void forgetWatches() {
  inChild.store(true);
  for (DeviceWatch& watch : watches) {
    watch.mutex = PTHREAD_MUTEX_INITIALIZER;
    watch.pidIsOurs = false;
    watch.pidWasThere = false;
    watch.hadContext = false;
    watch.reported = false;
    watch.measuring.store(false);
    watch.measuredAt.store(0);
    watch.freedAt.store(0);
    watch.doubtSince = 0;
    watch.importedSeen.store(0);
    watch.importsUnseen = 0;
  }
}

}  // namespace oomtune::cuda
