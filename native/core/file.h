// Making, mapping and checking a ledger file.
#pragma once

#include "ledger.h"

namespace oomtune {

struct DeviceSetup {
  uint32_t index;  // into Ledger::devices
  uint64_t budget;
  const char* name;
  const char* uuid;
};

/**
 * Makes the file (0600; it must not exist) with its blocks really on the disk: a job that touched a hole on a full disk
 * would die of SIGBUS. Returns 0 or an errno.
 */
int createLedger(const char* path, const DeviceSetup* devices, uint32_t count);

/** Fills zeroed memory of sizeof(Ledger) bytes. */
void initLedger(Ledger* ledger, const DeviceSetup* devices, uint32_t count);

/** Null: not there, not ours (another user's), not a regular file, or of another version or size. */
Ledger* mapLedger(const char* path, bool writable);
void unmapLedger(Ledger* ledger);

/** Magic, version, counts and size are those of this build. */
bool ledgerSound(const Ledger* ledger, uint64_t fileBytes);

}  // namespace oomtune
