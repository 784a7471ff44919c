// Runs the launch from the start of the job to the end of its last descendant: output, signals, time-outs, clean-up.
// Where a job that failed has left a spare (see docs/guides/hook.md), that one may stay until it ends by itself.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "ledger.h"
#include "log.h"
#include "spec.h"
#include "tee.h"

namespace oomtune {

struct Outcome {
  int status = 0;  // as wait(2) gives it
  const char* endedBy = "job";
  uint32_t stragglers = 0;
  uint64_t residentBytes = 0;  // the most that any one process of the tree had in memory; 0: not known
  uint64_t lostBytes = 0;      // output that its log had no room for
  bool killed = false;         // the job died of a SIGKILL that was not ours
};

class EventLoop {
 public:
  /** `searchLog` is made only if a spare stays: it gets what the spare's forks print. */
  EventLoop(const Spec& spec, Log& log, Log& searchLog, Ledger* ledger)
      : spec_(spec), log_(log), searchLog_(searchLog), ledger_(ledger) {}

  /** Called when the main process has ended and other processes of its tree are left. */
  std::function<void(const Outcome&)> onMainEnd;

  /** The read ends of the job's streams; `err` -1: both go into `out`. */
  void read(int out, int err, bool inherit);
  /** Returns when no process of the job is left. `signals` is a signalfd. */
  Outcome run(pid_t job, int signals, class Cgroup& cgroup);

 private:
  struct Source {
    int file = -1;
    Tee tee;
  };

  void pump(Source& source);
  void drain(int signals);
  bool reap();
  void mainEnded();
  void endOthers();
  void serve(int signals);
  void startEnding(const char* endedBy);
  void escalate(Cgroup& cgroup);
  void watchLedger(bool reaped);
  void watchOwner();
  /** Milliseconds that poll() may sleep until the next thing is due; -1: nothing is. */
  int nextTimeout() const;

  const Spec& spec_;
  Log& log_;
  Log& searchLog_;
  Ledger* ledger_;
  Source sources_[2];
  Outcome outcome_;
  pid_t job_ = -1;
  pid_t spare_ = -1;
  std::vector<pid_t> others_;  // left beside the spare: they are ended as ever
  bool searching_ = false;     // the job has ended and its spare has not been seen to: output is of its forks
  bool jobEnded_ = false;
  bool ending_ = false;
  bool killing_ = false;
  bool childless_ = false;
  uint64_t deadline_ = 0;  // of the time-out; ms of the monotonic clock, 0: none
  uint64_t linger_ = 0;    // when what outlives the job is ended
  uint64_t killAt_ = 0;
  uint64_t sweeps_ = 0;
  uint64_t nextReap_ = 0;
  uint64_t nextLook_ = 0;  // for processes that bypass the stand-in
  uint64_t nextOwnerLook_ = 0;
};

}  // namespace oomtune
