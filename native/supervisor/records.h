// What stands in supervisor.json, main.json and exit.json.
#pragma once

#include <sys/types.h>

#include <string>

#include "evidence.h"
#include "loop.h"
#include "spec.h"

namespace oomtune {

/** The launch folder: its path, and a descriptor of it, which has the lock. */
struct Folder {
  std::string path;
  int file;
};

/** Who owns the launch; `job` -1 and `cgroup` empty: none so far. 0 or an errno, as writeRecord(). */
int writeWho(int folder, const std::string& startedAt, pid_t job, const std::string& cgroup, const Spec& spec);

/** main.json: how the job's main process ended, while others of its tree are left. 0 or an errno. */
int writeMainExit(int folder, const std::string& startedAt, const Outcome& outcome);

/**
 * How it ended; `error`: why it could not be started, or empty. Does not return before it is on the disk: a full disk
 * is waited for, and a folder that somebody removed is made anew, since a result that is lost would have the job run
 * twice.
 */
void writeExit(const Folder& folder, const std::string& startedAt, const Outcome& outcome, TriState oom,
               const std::string& error);

/**
 * The same in place of a supervisor that was killed: main.json is taken for it where there is one, else nobody knows.
 */
void writeLoss(const Folder& folder, const std::string& startedAt, uint32_t stragglers);

}  // namespace oomtune
