// A checked copy of a ledger, for readers outside the job. The job can write anything into the file: nothing from it is
// used as an index, a length or a string before it was checked.
#pragma once

#include "ledger.h"

namespace oomtune {

struct DeviceSnapshot {
  uint32_t index;
  char name[16];
  uint64_t live;
  uint64_t peak;
  uint64_t overhead;
  uint64_t budget;  // kNoBudget: none
  uint64_t refused;
  uint32_t measured;  // a Measured
  uint64_t kinds[kKinds];
};

struct RefusalSnapshot {
  uint64_t at;
  uint64_t size;
  uint64_t live;
  uint64_t budget;
  uint32_t pid;
  uint32_t tid;
  uint32_t device;
  uint32_t by;
  char api[32];
};

struct LedgerSnapshot {
  uint32_t deviceCount;
  DeviceSnapshot devices[kDevices];
  uint32_t refusalCount;
  RefusalSnapshot refusals[kRefusals];  // oldest first
  uint64_t refused;
  uint32_t blind;
  uint32_t processes;  // slots in use
  uint64_t claims;     // slots ever taken
};

/** False: not a ledger. `out` is large (some 30 KiB): not for the stack of a small thread. */
bool readLedger(const Ledger* ledger, LedgerSnapshot* out);

}  // namespace oomtune
