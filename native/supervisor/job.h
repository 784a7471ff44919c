// Starting the job: argv as it stands, never through a shell, with the environment of the spec and no other.
#pragma once

#include <sys/types.h>

#include <string>

#include "cgroup.h"
#include "spec.h"

namespace oomtune {

struct Streams {
  int in;
  int out;
  int err;
  mode_t mask;  // the umask of whoever started us
};

/**
 * The job's pid; -1 with a sentence in `error` when it could not be started. The job leads its own process group, and
 * dies with its supervisor: nobody else would end it.
 */
pid_t startJob(const Spec& spec, const Streams& streams, const Cgroup& cgroup, std::string* error);

}  // namespace oomtune
