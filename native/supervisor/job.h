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
 * The job, in two steps: born, so that it can be told who it is before it runs, and released. It leads its own process
 * group, and dies with its supervisor: nobody else would end it. What fails leaves a sentence in `error`.
 */
class Job {
 public:
  /** One that was never released ends. */
  ~Job();
  bool bear(const Spec& spec, const Streams& streams, const Cgroup& cgroup, std::string* error);
  pid_t pid() const { return pid_; }
  /**
   * Lets it run. False: it could not be started, or a signal of `signals` (a signalfd) told to end it before it was,
   * and it is gone. A program on a dead file system may keep this waiting for ever otherwise.
   */
  bool release(const Spec& spec, int signals, std::string* error);

 private:
  bool starts(int signals) const;

  pid_t pid_ = -1;
  int go_ = -1;      // a byte is written here when it may run
  int report_ = -1;  // from here a Failure is read, or the end of the file when it runs
};

}  // namespace oomtune
