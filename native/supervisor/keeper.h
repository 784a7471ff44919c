// Above the supervisor: a process that does nothing but wait. If the supervisor is killed, all that is left of its tree
// comes to it, whatever session, process group and environment it has given itself, and is ended here.
#pragma once

#include <sys/types.h>

#include <string>

#include "records.h"

namespace oomtune {

/**
 * Waits for the supervisor, a child, and for whatever it leaves; writes exit.json in its place when it was killed.
 * Returns what this process is to exit with.
 */
int keepWatch(const Folder& folder, const std::string& startedAt, pid_t supervisor);

}  // namespace oomtune
