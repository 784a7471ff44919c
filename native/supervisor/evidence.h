// Did the kernel's OOM killer strike? Told by counters that rose while the job ran, and by the kernel's log.
#pragma once

#include <cstdint>
#include <string>

namespace oomtune {

enum class Told { kNo, kYes, kUnknown };

class OomEvidence {
 public:
  OomEvidence() = default;
  ~OomEvidence();
  OomEvidence(const OomEvidence&) = delete;
  OomEvidence& operator=(const OomEvidence&) = delete;

  /** Before the job starts. `group`: the folder of a cgroup of the launch's own; empty: it has none. */
  void begin(const std::string& group);
  /**
   * After it ended. `killed`: something of the tree that we saw died of a SIGKILL that we did not send. What others
   * share a cgroup with us for may have been theirs: such a counter alone proves nothing.
   */
  Told verdict(bool killed, int64_t mainPid);

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

/** Does a line of the kernel's log say that this process was killed for memory? */
bool kernelNames(const std::string& line, int64_t pid);

}  // namespace oomtune
