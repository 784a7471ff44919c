// What stands in supervisor.json and exit.json.
#pragma once

#include <sys/types.h>

#include <string>

#include "evidence.h"
#include "loop.h"

namespace oomtune {

/** Who owns the launch; `job` -1 and `cgroup` empty: none so far. 0 or an errno, as writeRecord(). */
int writeWho(int folder, const std::string& startedAt, pid_t job, const std::string& cgroup);

/** How it ended; `error`: why it could not be started, or empty. */
int writeExit(int folder, const std::string& startedAt, const Outcome& outcome, Told oom, const std::string& error);

}  // namespace oomtune
