// The contents of supervisor.json, main.json and exit.json.
#pragma once

#include <sys/types.h>

#include <string>

#include "event_loop.h"
#include "evidence.h"
#include "spec.h"

namespace oomtune {

/** The launch folder: its path, and a descriptor that holds its lock. */
struct Folder {
  std::string path;
  int file;
};

/** supervisor.json: who owns the launch; `job` -1 and `cgroup` empty: none so far. 0 or an errno, as writeRecord(). */
int writeSupervisorRecord(int folder, const std::string& startedAt, pid_t job, const std::string& cgroup,
                          const Spec& spec);

/** main.json: how the job's main process ended, while others of its tree are left. 0 or an errno. */
int writeMainExitRecord(int folder, const std::string& startedAt, const Outcome& outcome);

/**
 * exit.json: how the job ended; `error`: why it could not be started, or empty. Returns only when it is on the disk:
 * waits while the disk is full, and makes a removed folder anew, as a lost result would have the job run twice.
 */
void writeExitRecord(const Folder& folder, const std::string& startedAt, const Outcome& outcome, TriState oom,
                     const std::string& error);

/**
 * exit.json in place of a killed supervisor: by main.json if there is one, else as unknown.
 */
void writeLostRecord(const Folder& folder, const std::string& startedAt, uint32_t stragglers);

}  // namespace oomtune
