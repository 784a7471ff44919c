// Slots: which process holds what in a ledger, and how the bytes of dead processes are taken back.
#pragma once

#include "ledger.h"

namespace oomtune {

/**
 * The slot of this process (pid, start time, pid namespace). Found again by a second library of the same image; emptied
 * first if the process has called exec since. kOverflowSlot when all are taken by the living.
 */
uint32_t claimSlot(Ledger* ledger);

/**
 * Takes back the bytes of dead processes. Cheap if there are none. Returns the number of slots freed; 0 also if another
 * process is doing it.
 */
uint32_t reapSlots(Ledger* ledger);

/** Takes a lock between processes, also from one that has died. False: another process holds it. */
bool takeTurn(Cell& turn);
void endTurn(Cell& turn);

/** Marks a change of a slot's and its device's counters, so that a change interrupted by death is noticed. */
class Change {
 public:
  explicit Change(Slot& slot) : slot_(slot) { slot_.begun.fetch_add(1); }
  ~Change() { slot_.ended.fetch_add(1); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Slot& slot_;
};

}  // namespace oomtune
