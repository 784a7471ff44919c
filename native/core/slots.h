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
 * Takes back the bytes of processes that are gone. Cheap when nobody is. Returns the number of slots freed; 0 also when
 * another process is at it.
 */
uint32_t reapSlots(Ledger* ledger);

/** One process at a time, also after the one whose turn it was died. False: it is another's. */
bool takeTurn(Cell& turn);
void endTurn(Cell& turn);

/** Marks a change of one slot's and its device's counters, so that one which was cut short by death is noticed. */
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
