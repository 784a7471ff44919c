#include "measure.h"

#include <time.h>

#include "account.h"
#include "calls.h"
#include "pools.h"
#include "real.h"
#include "slots.h"
#include "table.h"
#include "vmm.h"
#include "watch.h"

namespace oomtune::cuda {

namespace {

using account::Place;

constexpr uint64_t kGiB = 1ULL << 30;
// Contexts, modules, NCCL and eagerly loaded kernels stay well below this; more means allocations that no hook saw.
constexpr uint64_t kUnseen = 4 * kGiB;
// NVML shows freed memory as used for a moment longer (seen on an H200 with driver 580): an overhead that seems to have
// grown within so many milliseconds of a free is not believed at once. After half a second of such doubt it is looked
// at again and again, half a millisecond apart.
constexpr uint64_t kFreeShows = 20;
constexpr uint64_t kDoubt = 500;
constexpr int kFreeWaits = 20;

uint64_t microseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

uint64_t less(uint64_t from, uint64_t what) { return from > what ? from - what : 0; }

/** Of any process of the launch, as a figure of the whole device has all of theirs in it. */
bool holdsManaged(Place place) {
  const Ledger& ledger = *account::gate().ledger();
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (ledger.keys[i].pid.load() != 0 && ledger.slots[i].devices[place].kinds[kManaged].load() != 0) return true;
  }
  return false;
}

uint64_t processes() {
  const Ledger& ledger = *account::gate().ledger();
  uint64_t count = 0;
  for (const SlotKey& key : ledger.keys) count += key.pid.load() != 0 ? 1 : 0;
  return count;
}

/** What this process holds besides, seen now; false: there is no figure, or none at a moment when nothing moved. */
bool look(Watch& watch, Place place, uint64_t old, uint64_t* overhead) {
  refreshPools(place);
  for (int attempt = 0; attempt < 4; ++attempt) {
    uint64_t used = 0;
    bool othersMoved = false;
    const uint64_t changes = changesNow();
    const uint64_t hooked = hookedNow(place);
    bool moved = account::unsettled();
    if (!usedNow(watch, place, &used, &othersMoved)) return false;
    if (watch.pidIsOurs) used += vmmInArraysOnly(place);
    moved = moved || othersMoved || account::unsettled() || changesNow() != changes;
    if (moved) continue;
    *overhead = less(less(used, watch.importedSeen.load()), hooked);
    // A neighbour's memory looks like ours in a figure of the whole device: believe it only as far as contexts can go,
    // of all processes of the launch, as the first to look finds those of all.
    if (!watch.pidIsOurs && *overhead / kUnseen >= processes()) return false;
    // Managed memory moves between host and device: it must not make the rest look smaller than it was.
    if (*overhead < old && holdsManaged(place)) *overhead = old;
    return true;
  }
  return false;
}

/** Before `moment`: by this process; in a figure of the whole device, by any process of the launch. */
bool freedBefore(const Watch& watch, Place place, uint64_t moment) {
  uint64_t at = watch.freedAt.load(std::memory_order_relaxed);
  const uint64_t byAny = watch.pidIsOurs ? 0 : account::gate().ledger()->devices[place].freedAt.load();
  if (byAny > at) at = byAny;
  return at != 0 && moment <= at + kFreeShows;
}

void measureLocked(Watch& watch, Place place) {
  Gate& gate = account::gate();
  const Turn turn(watch, place);
  const uint64_t old = gate.overhead(place);
  uint64_t overhead = 0;
  const uint64_t looked = milliseconds();  // before: the thread may be held up between looking and judging
  if (!turn.ours() || !look(watch, place, old, &overhead)) return;
  if (overhead > old && freedBefore(watch, place, looked)) {
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

void measureContext(Place place) {
  if (place < 0 || !account::gate().attached()) return;
  reapSlots(account::gate().ledger());  // a context is not asked for: what the dead held must not stand beside it
  watchOf(place).freedAt.store(0);      // what grew is the context: no doubt about it
  account::gate().ledger()->devices[place].freedAt.store(0);
  measureNow(place);
}

void measureNow(Place place) {
  if (!account::gate().attached() || !watching()) return;
  Watch& watch = watchOf(place);
  const Relaxed relaxed;
  Lock lock(watch.mutex);
  const uint64_t begin = microseconds();
  watch.measuring.store(true);
  measureLocked(watch, place);
  watch.measuring.store(false);
  watch.costMicroseconds.store(microseconds() - begin, std::memory_order_relaxed);
  watch.measuredAt.store(milliseconds(), std::memory_order_relaxed);
}

bool measureIfOlder(Place place, uint64_t age) {
  if (!account::gate().attached() || !watching()) return false;
  Watch& watch = watchOf(place);
  uint64_t last = watch.measuredAt.load(std::memory_order_relaxed);
  uint64_t now = milliseconds();
  if (now - last < age) return false;
  // One thread is enough.
  if (!watch.measuredAt.compare_exchange_strong(last, now)) return false;
  measureNow(place);
  return true;
}

bool measureOften(Place place, unsigned times) {
  return measureIfOlder(place, watchOf(place).costMicroseconds.load(std::memory_order_relaxed) * times / 1000 + 1);
}

void measureAtEnd(Place place) {
  Watch& watch = watchOf(place);
  if (!watch.measuring.load()) measureNow(place);  // no trylock: older glibcs have it in libpthread alone
}

}  // namespace oomtune::cuda
