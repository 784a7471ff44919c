#include "slots.h"

#include "process.h"

namespace oomtune {

namespace {

void emptySlot(Slot& slot) {
  for (SlotDevice& device : slot.devices) {
    device.committed.store(0);
    device.live.store(0);
    device.peak.store(0);
    device.markPeak.store(0);
    device.overhead.store(0);
    for (Cell& kind : device.kinds) kind.store(0);
  }
  slot.ended.store(slot.begun.load());
}

void takeBack(Ledger* ledger, Slot& slot) {
  for (uint32_t d = 0; d < kDevices; ++d) {
    uint64_t committed = slot.devices[d].committed.exchange(0);
    uint64_t live = slot.devices[d].live.exchange(0);
    if (committed != 0) ledger->devices[d].committed.fetch_sub(committed);
    if (live != 0) ledger->devices[d].live.fetch_sub(live);
  }
}

struct Sums {
  uint64_t committed[kDevices];
  uint64_t live[kDevices];
};

/** Sums all slots; false if one of them was in the middle of a change. */
bool sumSlots(Ledger* ledger, Sums* sums, uint64_t* changes) {
  *sums = Sums{};
  *changes = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (ledger->keys[i].pid.load() == 0) continue;
    Slot& slot = ledger->slots[i];
    uint64_t ended = slot.ended.load();
    uint64_t begun = slot.begun.load();
    if (begun != ended) return false;
    *changes += begun + 1;
    for (uint32_t d = 0; d < kDevices; ++d) {
      sums->committed[d] += slot.devices[d].committed.load();
      sums->live[d] += slot.devices[d].live.load();
    }
  }
  return true;
}

/**
 * Corrects the devices' counters after a process died between two of its writes: each must be the sum of the slots,
 * read at a moment when no slot is being changed. A compare-and-swap keeps changes that happen meanwhile. False: the
 * others were too busy; the next reaper tries again.
 */
bool reconcile(Ledger* ledger) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    Sums sums;
    Sums again;
    uint64_t before = 0;
    uint64_t after = 0;
    if (!sumSlots(ledger, &sums, &before)) continue;
    uint64_t committed[kDevices];
    uint64_t live[kDevices];
    for (uint32_t d = 0; d < kDevices; ++d) {
      committed[d] = ledger->devices[d].committed.load();
      live[d] = ledger->devices[d].live.load();
    }
    if (!sumSlots(ledger, &again, &after) || before != after) continue;
    bool whole = true;
    for (uint32_t d = 0; d < kDevices; ++d) {
      DeviceEntry& device = ledger->devices[d];
      if (committed[d] != sums.committed[d]) {
        whole = device.committed.compare_exchange_strong(committed[d], sums.committed[d]) && whole;
      }
      if (live[d] != sums.live[d]) whole = device.live.compare_exchange_strong(live[d], sums.live[d]) && whole;
    }
    if (whole) return true;
  }
  return false;
}

/** Pid and start time in one word, so that the lock of a dead process is recognised even if its pid is reused. */
uint64_t nameOf(uint64_t pid, uint64_t start) { return pid << 32 | (start & UINT32_MAX); }

uint64_t ownName() {
  ProcessStat stat{};
  readStat(currentPid(), &stat);
  return nameOf(currentPid(), stat.start);
}

bool namedLives(uint64_t name) {
  ProcessStat stat{};
  const uint64_t pid = name >> 32;
  if (!processExists(pid, 0)) return false;
  return !readStat(pid, &stat) || nameOf(pid, stat.start) == name;
}

/** `died`: the lock was taken over from a process that died with it. */
bool lockAs(Cell& word, uint64_t self, bool* died) {
  uint64_t holder = 0;
  *died = false;
  if (word.compare_exchange_strong(holder, self)) return true;
  if (holder == self || namedLives(holder)) return false;
  return *died = word.compare_exchange_strong(holder, self);
}

}  // namespace

bool takeTurn(Cell& turn) {
  bool died = false;
  return lockAs(turn, ownName(), &died);
}

void endTurn(Cell& turn) { turn.store(0); }

uint32_t reapSlots(Ledger* ledger) {
  const uint64_t pidns = currentPidNamespace();
  const uint64_t self = currentPid();
  const uint64_t image = currentImage();
  bool died = false;
  if (!lockAs(ledger->reaper, ownName(), &died)) return 0;
  if (died) ledger->drift.store(1);  // reconcile() corrects what the last reaper left half done
  uint32_t freed = 0;
  for (uint32_t i = 0; i < kOverflowSlot; ++i) {
    SlotKey& key = ledger->keys[i];
    uint64_t pid = key.pid.load();
    if (pid == 0) continue;
    uint64_t start = key.start.load();
    // Being taken: it holds nothing yet, and its pid's namespace is unknown.
    if (start == 0 || key.pidns.load() != pidns) continue;
    // Our own, whatever its start time: emulators show that of the calling thread.
    if (pid == self && key.image.load() == image) continue;
    if (processExists(pid, start)) continue;
    Slot& slot = ledger->slots[i];
    bool cutShort = slot.begun.load() != slot.ended.load();
    uint32_t drift = ledger->drift.exchange(1);  // until this slot is done, in case this process dies, too
    takeBack(ledger, slot);
    emptySlot(slot);
    key.start.store(0);
    key.pid.store(0);
    if (!cutShort && drift == 0) ledger->drift.store(0);
    ++freed;
  }
  if (ledger->drift.load() != 0 && reconcile(ledger)) ledger->drift.store(0);
  ledger->reaper.store(0);
  return freed;
}

uint32_t claimSlot(Ledger* ledger) {
  const uint64_t pid = currentPid();
  const uint64_t image = currentImage();
  const uint64_t pidns = currentPidNamespace();
  ProcessStat stat{};
  const uint64_t start = readStat(pid, &stat) && stat.start != 0 ? stat.start : 1;
  for (uint32_t i = 0; i < kOverflowSlot; ++i) {
    SlotKey& key = ledger->keys[i];
    if (key.pid.load() != pid || key.start.load() != start || key.pidns.load() != pidns) continue;
    if (key.image.load() == image) return i;
    // The same process after exec: the old image's memory went with it.
    Slot& slot = ledger->slots[i];
    if (slot.begun.load() != slot.ended.load()) ledger->drift.store(1);
    uint64_t reaper = nameOf(pid, start);
    if (ledger->reaper.compare_exchange_strong(reaper, 0))
      ledger->drift.store(1);  // a thread of the old image was changing it
    for (DeviceEntry& device : ledger->devices) {
      uint64_t holder = nameOf(pid, start);
      device.measureLock.compare_exchange_strong(holder, 0);
    }
    takeBack(ledger, slot);
    emptySlot(slot);
    key.image.store(image);
    return i;
  }
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < kOverflowSlot; ++i) {
      SlotKey& key = ledger->keys[i];
      uint64_t expected = 0;
      if (key.pid.load() != 0 || !key.pid.compare_exchange_strong(expected, pid)) continue;
      emptySlot(ledger->slots[i]);
      key.image.store(image);
      key.pidns.store(pidns);
      key.start.store(start);
      ledger->claims.fetch_add(1);
      return i;
    }
    if (round == 0 && reapSlots(ledger) == 0) break;
  }
  ledger->keys[kOverflowSlot].start.store(1);
  ledger->keys[kOverflowSlot].pid.store(kOverflowPid);
  ledger->claims.fetch_add(1);
  ledger->blind.fetch_or(kBlindSlots);
  return kOverflowSlot;
}

}  // namespace oomtune
