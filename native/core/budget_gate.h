// The budget gate of one process: reserve, then allocate, then commit (or cancel); release on free.
//
//   if (!gate.reserve(device, size, "cuMemAlloc_v2")) return CUDA_ERROR_OUT_OF_MEMORY;
//   result = real(...);
//   if (failed) { gate.cancel(device, size); gate.refuse(device, size, "cuMemAlloc_v2", kByDriver); }
//   else gate.commit(device, kClassic, size);
//
// A gate that has no ledger lets everything through and counts nothing. All calls are thread-safe and allocate nothing;
// several libraries of one process may each have a gate: they share the slot.
#pragma once

#include "ledger.h"

namespace oomtune {

class BudgetGate {
 public:
  /** Maps the ledger and takes this process's slot. False: no usable ledger; the gate stays open. */
  bool attach(const char* path);
  /** As attach(), with a mapped ledger: for tests and the supervisor. */
  bool attachTo(Ledger* ledger);
  /** Call it first in a forked child: takes a new, empty slot, as the bytes belong to the parent. */
  void forked();
  bool attached() const { return ledger_ != nullptr; }

  /**
   * Promises `size` bytes if they fit; takes back what dead processes held before it refuses. Records a refusal by
   * the budget, unless `record` is false: then the caller may retry with less, and calls refuse() itself.
   */
  bool reserve(uint32_t device, uint64_t size, const char* api, bool record = true);
  void cancel(uint32_t device, uint64_t size);
  /** The allocation succeeded: count it, and raise the peaks. */
  void commit(uint32_t device, Kind kind, uint64_t size);
  void release(uint32_t device, Kind kind, uint64_t size);
  /** Counts what is allocated already: reserve and commit in one, never refused. */
  void add(uint32_t device, Kind kind, uint64_t size);
  /** Sets this process's overhead (contexts, modules). Never refused: it is allocated already. */
  void setOverhead(uint32_t device, uint64_t bytes);
  /** Counts as overhead what was counted as `kind` and can no longer be followed, until overhead is measured. */
  void handOver(uint32_t device, Kind kind, uint64_t size);
  /** Records by which of the driver's figures overhead was measured. */
  void setMeasured(uint32_t device, Measured by);
  void refuse(uint32_t device, uint64_t size, const char* api, RefusedBy by);
  void markBlind(Blind reason);

  /** Bytes of this process, overhead included. */
  uint64_t live(uint32_t device) const;
  uint64_t peak(uint32_t device) const;
  void resetPeak(uint32_t device);
  uint64_t overhead(uint32_t device) const;
  /** kNoBudget: there is none. */
  uint64_t budget(uint32_t device) const;
  /** What is left of the budget for the whole launch; kNoBudget without a budget. */
  uint64_t available(uint32_t device) const;
  /** Refused calls of the whole launch. */
  uint64_t refused() const;
  /** The job's CUDA ordinal with this uuid ("GPU-…"), as an index into devices; -1: not in this launch. */
  int deviceByUuid(const char* uuid) const;

  Ledger* ledger() const { return ledger_; }
  uint32_t slotIndex() const { return slot_; }

 private:
  Slot& slot() const { return ledger_->slots[slot_]; }
  bool usable(uint32_t device) const { return ledger_ != nullptr && device < kDevices; }

  Ledger* ledger_ = nullptr;
  uint32_t slot_ = kOverflowSlot;
};

}  // namespace oomtune
