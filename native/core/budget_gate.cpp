#include "budget_gate.h"

#include <cerrno>
#include <cstring>

#include "file.h"
#include "process.h"
#include "slots.h"

namespace oomtune {

namespace {

void raise(Cell& peak, uint64_t value) {
  uint64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value)) {
  }
}

/** Adds if the sum stays within the limit; unlike adding first, it never makes another caller fail for a moment. */
bool addWithin(Cell& cell, uint64_t size, uint64_t limit) {
  uint64_t seen = cell.load();
  do {
    if (seen > limit || size > limit - seen) return false;
  } while (!cell.compare_exchange_weak(seen, seen + size));
  return true;
}

/**
 * Death between two writes must leave the device's counters too high, never too low (reconcile() sets them right): what
 * grows is added to the device first, what shrinks is taken from the slot first.
 */
void grow(Cell& device, Cell& slot, uint64_t size, uint64_t* all, uint64_t* mine) {
  *all = device.fetch_add(size) + size;
  *mine = slot.fetch_add(size) + size;
}

void shrink(Cell& device, Cell& slot, uint64_t size, uint64_t* all, uint64_t* mine) {
  *mine = slot.fetch_sub(size) - size;
  *all = device.fetch_sub(size) - size;
}

/** Live bytes above the budget are leftovers of a process that died in between, or overhead, which is committed, too.
 */
uint64_t believable(const DeviceEntry& device, uint64_t live) {
  const uint64_t budget = device.budget.load(std::memory_order_relaxed);
  if (live <= budget) return live;
  const uint64_t committed = device.committed.load();
  const uint64_t most = committed > budget ? committed : budget;
  return live < most ? live : most;
}

}  // namespace

bool BudgetGate::attach(const char* path) {
  Ledger* ledger = mapLedger(path, true);
  return ledger != nullptr && attachTo(ledger);
}

bool BudgetGate::attachTo(Ledger* ledger) {
  slot_ = claimSlot(ledger);
  ledger_ = ledger;
  return true;
}

void BudgetGate::forked() {
  if (ledger_ != nullptr) slot_ = claimSlot(ledger_);
}

bool BudgetGate::reserve(uint32_t device, uint64_t size, const char* api, bool record) {
  if (!usable(device)) return true;
  DeviceEntry& entry = ledger_->devices[device];
  for (int round = 0; round < 2; ++round) {
    {
      Change change(slot());
      // kNoBudget still guards the sum against wrapping round.
      if (addWithin(entry.committed, size, entry.budget.load())) {
        slot().devices[device].committed.fetch_add(size);
        return true;
      }
    }
    if (round == 0 && reapSlots(ledger_) == 0) break;
  }
  if (record) refuse(device, size, api, kByBudget);
  return false;
}

void BudgetGate::cancel(uint32_t device, uint64_t size) {
  if (!usable(device)) return;
  uint64_t all = 0;
  uint64_t mine = 0;
  Change change(slot());
  shrink(ledger_->devices[device].committed, slot().devices[device].committed, size, &all, &mine);
}

void BudgetGate::commit(uint32_t device, Kind kind, uint64_t size) {
  if (!usable(device)) return;
  DeviceEntry& entry = ledger_->devices[device];
  SlotDevice& own = slot().devices[device];
  uint64_t all = 0;
  uint64_t mine = 0;
  {
    Change change(slot());
    grow(entry.live, own.live, size, &all, &mine);
    own.kinds[kind < kKinds ? kind : kClassic].fetch_add(size);
  }
  raise(entry.peak, believable(entry, all));
  raise(own.peak, mine);
  raise(own.markPeak, mine);
}

void BudgetGate::add(uint32_t device, Kind kind, uint64_t size) {
  if (!usable(device)) return;
  uint64_t all = 0;
  uint64_t mine = 0;
  {
    Change change(slot());
    grow(ledger_->devices[device].committed, slot().devices[device].committed, size, &all, &mine);
  }
  commit(device, kind, size);
}

void BudgetGate::release(uint32_t device, Kind kind, uint64_t size) {
  if (!usable(device)) return;
  DeviceEntry& entry = ledger_->devices[device];
  SlotDevice& own = slot().devices[device];
  uint64_t all = 0;
  uint64_t mine = 0;
  Change change(slot());
  own.kinds[kind < kKinds ? kind : kClassic].fetch_sub(size);
  shrink(entry.live, own.live, size, &all, &mine);
  shrink(entry.committed, own.committed, size, &all, &mine);
}

void BudgetGate::setOverhead(uint32_t device, uint64_t bytes) {
  if (!usable(device)) return;
  DeviceEntry& entry = ledger_->devices[device];
  SlotDevice& own = slot().devices[device];
  uint64_t all = 0;
  uint64_t mine = 0;
  {
    Change change(slot());
    const uint64_t before = own.overhead.exchange(bytes);
    if (bytes >= before) {
      grow(entry.committed, own.committed, bytes - before, &all, &mine);
      grow(entry.live, own.live, bytes - before, &all, &mine);
    } else {
      shrink(entry.live, own.live, before - bytes, &all, &mine);
      shrink(entry.committed, own.committed, before - bytes, &all, &mine);
    }
  }
  raise(entry.peak, believable(entry, all));
  raise(own.peak, mine);
  raise(own.markPeak, mine);
}

void BudgetGate::handOver(uint32_t device, Kind kind, uint64_t size) {
  if (!usable(device)) return;
  SlotDevice& own = slot().devices[device];
  Change change(slot());
  own.kinds[kind < kKinds ? kind : kClassic].fetch_sub(size);
  own.overhead.fetch_add(size);
}

void BudgetGate::setMeasured(uint32_t device, Measured by) {
  if (!usable(device)) return;
  Word& measured = ledger_->devices[device].measured;
  uint32_t seen = measured.load(std::memory_order_relaxed);
  while (seen < by && !measured.compare_exchange_weak(seen, by)) {
  }
}

void BudgetGate::refuse(uint32_t device, uint64_t size, const char* api, RefusedBy by) {
  if (!usable(device)) return;
  DeviceEntry& entry = ledger_->devices[device];
  entry.refused.fetch_add(1);
  const uint64_t index = ledger_->refused.fetch_add(1);
  RefusalEntry& refusal = ledger_->refusals[index % kRefusals];
  char name[sizeof refusal.api] = {};
  std::strncpy(name, api, sizeof name - 1);
  refusal.sequence.store(2 * index + 1);
  refusal.atNanoseconds.store(nowNanoseconds());
  refusal.size.store(size);
  refusal.live.store(entry.live.load());
  refusal.budget.store(entry.budget.load());
  refusal.pid.store(currentPid());
  refusal.tid.store(currentTid());
  refusal.device.store(device);
  refusal.by.store(by);
  for (size_t i = 0; i < 4; ++i) {
    uint64_t part = 0;
    std::memcpy(&part, name + 8 * i, sizeof part);
    refusal.api[i].store(part);
  }
  refusal.sequence.store(2 * index + 2);
}

void BudgetGate::markBlind(Blind reason) {
  if (ledger_ != nullptr) ledger_->blind.fetch_or(reason);
}

uint64_t BudgetGate::live(uint32_t device) const { return usable(device) ? slot().devices[device].live.load() : 0; }

uint64_t BudgetGate::peak(uint32_t device) const { return usable(device) ? slot().devices[device].markPeak.load() : 0; }

void BudgetGate::resetPeak(uint32_t device) {
  if (!usable(device)) return;
  SlotDevice& own = slot().devices[device];
  own.markPeak.store(own.live.load());
  raise(own.markPeak, own.live.load());  // an allocation may have come between the two
}

uint64_t BudgetGate::overhead(uint32_t device) const {
  return usable(device) ? slot().devices[device].overhead.load() : 0;
}

uint64_t BudgetGate::budget(uint32_t device) const {
  return usable(device) ? ledger_->devices[device].budget.load() : kNoBudget;
}

uint64_t BudgetGate::available(uint32_t device) const {
  const uint64_t limit = budget(device);
  if (limit == kNoBudget) return kNoBudget;
  const uint64_t committed = ledger_->devices[device].committed.load();
  return committed < limit ? limit - committed : 0;
}

uint64_t BudgetGate::refused() const { return ledger_ != nullptr ? ledger_->refused.load() : 0; }

int BudgetGate::deviceByUuid(const char* uuid) const {
  if (ledger_ == nullptr || uuid == nullptr || uuid[0] == '\0') return -1;
  for (uint32_t d = 1; d < kDevices; ++d) {
    const DeviceEntry& entry = ledger_->devices[d];
    if (entry.present.load() == 1 && std::strncmp(entry.uuid, uuid, sizeof entry.uuid) == 0) return static_cast<int>(d);
  }
  return -1;
}

}  // namespace oomtune
