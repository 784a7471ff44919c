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

/**
 * Null: not there, not ours (another user's), not a regular file, or of another version or size. For the job's own
 * processes: any of them can truncate the file, and the next access is a SIGBUS.
 */
Ledger* mapLedger(const char* path, bool writable);
void unmapLedger(Ledger* ledger);

/**
 * For the one process that maps a ledger and must survive what the job does to it: installs a handler of SIGBUS. A
 * truncated file is replaced by empty memory. One mapping at a time, from mapLedger().
 */
void guardLedger(Ledger* ledger);

/**
 * Copies the file as it is now, for readers outside the job: nothing that the job does to the file can harm them.
 * False: as mapLedger's null.
 */
bool copyLedger(const char* path, Ledger* out);

/** Frees the disk blocks of the empty pages of a ledger that nobody writes any more: few of its 940 KB remain. */
void trimLedger(const char* path);

/** Magic, version, counts and size are those of this build. */
bool ledgerSound(const Ledger* ledger, uint64_t fileBytes);

}  // namespace oomtune
