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
 * The job's main process, started in two steps: spawn() forks it, so that its pid can be recorded before it runs, and
 * release() lets it exec. It leads its own process group, and the kernel kills it when its supervisor dies, as nobody
 * else would end it. What fails leaves a sentence in `error`.
 */
class Job {
 public:
  /** A job that was never released exits without running anything. */
  ~Job();
  /** Forks the job into `cgroup`; it waits there. False: a pipe or the fork failed. */
  bool spawn(const Spec& spec, const Streams& streams, const Cgroup& cgroup, std::string* error);
  /** -1 before spawn(). */
  pid_t pid() const { return pid_; }
  /**
   * Lets it exec. False: it could not be started, or a signal of `signals` (a signalfd) asked for its end first, and it
   * has been killed. Signals are looked at since a program on a dead file system may take for ever to be executed.
   */
  bool release(const Spec& spec, int signals, std::string* error);

 private:
  bool waitForExec(int signals) const;

  pid_t pid_ = -1;
  int go_ = -1;      // a byte is written here when it may run
  int report_ = -1;  // from here a Failure is read, or the end of the file when it runs
};

}  // namespace oomtune
