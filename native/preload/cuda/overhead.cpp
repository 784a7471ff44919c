#include "overhead.h"

#include <time.h>

#include "account.h"
#include "device_watch.h"
#include "driver_calls.h"
#include "hash_table.h"
#include "pools.h"
#include "real_library.h"
#include "slots.h"
#include "vmm.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

constexpr uint64_t kGiB = 1ULL << 30;
// Contexts, modules, NCCL and eagerly loaded kernels stay well below this; more means allocations that no hook saw.
constexpr uint64_t kUnseen = 4 * kGiB;
// NVML shows freed memory as used for a moment longer (seen on an H200 with driver 580): overhead that seems to have
// grown within kFreeShows milliseconds of a free is not believed at once. After kDoubt milliseconds of such doubt it is
// measured again, up to kFreeWaits times, half a millisecond apart.
constexpr uint64_t kFreeShows = 20;
constexpr uint64_t kDoubt = 500;
constexpr int kFreeWaits = 20;

uint64_t microseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

uint64_t saturatingSub(uint64_t from, uint64_t what) { return from > what ? from - what : 0; }

/** True if any process of the launch holds managed memory: figures of the whole device include all of it. */
bool holdsManaged(DeviceIndex deviceIndex) {
  const Ledger& ledger = *account::gate().ledger();
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (ledger.keys[i].pid.load() != 0 && ledger.slots[i].devices[deviceIndex].kinds[kManaged].load() != 0) return true;
  }
  return false;
}

uint64_t processes() {
  const Ledger& ledger = *account::gate().ledger();
  uint64_t count = 0;
  for (const SlotKey& key : ledger.keys) count += key.pid.load() != 0 ? 1 : 0;
  return count;
}

/** Measures this process's overhead; false: there is no figure, or none of a moment when nothing changed. */
bool look(DeviceWatch& watch, DeviceIndex deviceIndex, uint64_t old, uint64_t* overhead) {
  refreshPools(deviceIndex);
  for (int attempt = 0; attempt < 4; ++attempt) {
    uint64_t used = 0;
    bool othersMoved = false;
    const uint64_t changes = changesNow();
    const uint64_t hooked = hookedNow(deviceIndex);
    bool moved = account::driverCallUnderWay();
    if (!usedNow(watch, deviceIndex, &used, &othersMoved)) return false;
    if (watch.pidIsOurs) used += vmmInArraysOnly(deviceIndex);
    moved = moved || othersMoved || account::driverCallUnderWay() || changesNow() != changes;
    if (moved) continue;
    *overhead = saturatingSub(saturatingSub(used, watch.importedSeen.load()), hooked);
    // In a figure of the whole device another job's memory looks like ours: believe no more than contexts of all
    // processes of the launch can take, as the first process to measure finds all of them.
    if (!watch.pidIsOurs && *overhead / kUnseen >= processes()) return false;
    // Managed memory moves between host and device: it must not make the rest look smaller than it was.
    if (*overhead < old && holdsManaged(deviceIndex)) *overhead = old;
    return true;
  }
  return false;
}

/** True if memory was freed shortly before `moment`: by this process, or by any process for figures of the device. */
bool freedBefore(const DeviceWatch& watch, DeviceIndex deviceIndex, uint64_t moment) {
  uint64_t at = watch.freedAt.load(std::memory_order_relaxed);
  const uint64_t byAny = watch.pidIsOurs ? 0 : account::gate().ledger()->devices[deviceIndex].freedAt.load();
  if (byAny > at) at = byAny;
  return at != 0 && moment <= at + kFreeShows;
}

void measureLocked(DeviceWatch& watch, DeviceIndex deviceIndex) {
  BudgetGate& gate = account::gate();
  const MeasureTurn turn(watch, deviceIndex);
  const uint64_t old = gate.overhead(deviceIndex);
  uint64_t overhead = 0;
  const uint64_t looked = milliseconds();  // taken before: the thread may be delayed between measuring and judging
  if (!turn.ours() || !look(watch, deviceIndex, old, &overhead)) return;
  if (overhead > old && freedBefore(watch, deviceIndex, looked)) {
    // If memory is freed all the time the doubt would never end: then wait for the figure to settle.
    const uint64_t now = milliseconds();
    if (watch.doubtSince == 0) watch.doubtSince = now;
    if (now - watch.doubtSince < kDoubt) return;
    for (int wait = 0; wait < kFreeWaits && overhead > old; ++wait) {
      const timespec pause{0, 500000};
      nanosleep(&pause, nullptr);
      if (!look(watch, deviceIndex, old, &overhead)) return;
    }
  }
  watch.doubtSince = 0;
  if (overhead != old) gate.setOverhead(deviceIndex, overhead);
  if (overhead > kUnseen) {
    gate.markBlind(kBlindUnseen);
    debugLine("%llu bytes on the device were not seen by the hooks", static_cast<unsigned long long>(overhead));
  }
}

}  // namespace

void measureContext(DeviceIndex deviceIndex) {
  if (deviceIndex < 0 || !account::gate().attached()) return;
  reapSlots(account::gate().ledger());    // a context is not admitted: take back what dead processes held first
  watchOf(deviceIndex).freedAt.store(0);  // what has grown is certainly the context
  account::gate().ledger()->devices[deviceIndex].freedAt.store(0);
  measureNow(deviceIndex);
}

void measureNow(DeviceIndex deviceIndex) {
  if (!account::gate().attached() || !watching()) return;
  DeviceWatch& watch = watchOf(deviceIndex);
  const RelaxedCapture relaxed;
  Lock lock(watch.mutex);
  const uint64_t begin = microseconds();
  watch.measuring.store(true);
  measureLocked(watch, deviceIndex);
  watch.measuring.store(false);
  // NVML waits while another process makes its context: what one measurement alone took says nothing of the next.
  const uint64_t cost = microseconds() - begin;
  watch.costMicroseconds.store(cost < watch.costBefore ? cost : watch.costBefore, std::memory_order_relaxed);
  watch.costBefore = cost;
  watch.measuredAt.store(milliseconds(), std::memory_order_relaxed);
}

bool measureIfOlder(DeviceIndex deviceIndex, uint64_t age) {
  if (!account::gate().attached() || !watching()) return false;
  DeviceWatch& watch = watchOf(deviceIndex);
  uint64_t last = watch.measuredAt.load(std::memory_order_relaxed);
  uint64_t now = milliseconds();
  if (now - last < age) return false;
  // One thread is enough.
  if (!watch.measuredAt.compare_exchange_strong(last, now)) return false;
  measureNow(deviceIndex);
  return true;
}

bool measureOften(DeviceIndex deviceIndex, unsigned times) {
  return measureIfOlder(deviceIndex,
                        watchOf(deviceIndex).costMicroseconds.load(std::memory_order_relaxed) * times / 1000 + 1);
}

void measureAtEnd(DeviceIndex deviceIndex) {
  DeviceWatch& watch = watchOf(deviceIndex);
  if (!watch.measuring.load()) measureNow(deviceIndex);  // no trylock: older glibcs have it in libpthread alone
}

}  // namespace oomtune::cuda
