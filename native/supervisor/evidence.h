// Whether the kernel's OOM killer killed a process of the job: judged by counters that rose while it ran, and by the
// kernel's log.
#pragma once

#include <cstdint>
#include <string>

namespace oomtune {

/** kUnknown: there is no evidence either way. */
enum class TriState { kNo, kYes, kUnknown };

class OomEvidence {
 public:
  OomEvidence() = default;
  ~OomEvidence();
  OomEvidence(const OomEvidence&) = delete;
  OomEvidence& operator=(const OomEvidence&) = delete;

  /** Reads the counters before the job starts. `group`: the folder of the launch's own cgroup; empty: it has none. */
  void begin(const std::string& group);
  /**
   * Judges after the job has ended. `killed`: a process of the tree died of a SIGKILL that we did not send. In a cgroup
   * that others share the killed process may have been theirs, so its counter alone proves nothing.
   */
  TriState verdict(bool killed, int64_t mainPid);

 private:
  std::string groupFile_;  // the narrowest cgroup file with an oom_kill line that covers the job
  bool unified_ = false;
  bool own_ = false;  // no other job is in that group
  int64_t groupBefore_ = -1;
  int64_t systemBefore_ = -1;
  int kmsg_ = -1;
};

/** The number after `oom_kill ` at the start of a line; -1: there is none. */
int64_t oomKillLine(const std::string& text);

/** True if this line of the kernel's log says that the process was killed for memory. */
bool kernelNames(const std::string& line, int64_t pid);

}  // namespace oomtune
