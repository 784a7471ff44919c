// The keeper: the parent process of the supervisor, which only waits. If the supervisor is killed, the kernel hands all
// its descendants to the keeper, whatever session, process group or environment they have, and the keeper kills them.
#pragma once

#include <sys/types.h>

#include <string>

#include "records.h"

namespace oomtune {

/**
 * Waits for the supervisor (a child of this process) and for all that it leaves; writes exit.json in its place when it
 * was killed. Returns the exit code of this process.
 */
int runKeeper(const Folder& folder, const std::string& startedAt, pid_t supervisor);

}  // namespace oomtune
