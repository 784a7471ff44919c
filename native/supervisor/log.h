// The job's log: `log`, and `log.1` with what came before it. Written by the supervisor alone, never larger than twice
// the limit, whatever the job prints. One that is deleted or moved away is made anew.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace oomtune {

class Log {
 public:
  /** `folder` is a descriptor of the launch folder. */
  Log(int folder, uint64_t limit) : folder_(folder), limit_(limit) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /** 0 or an errno. The file is made anew, 0600. */
  int open();
  /** Never fails for the job: what a full disk does not take is counted, and told once there is room again. */
  void write(const char* bytes, size_t length);
  uint64_t lost() const { return lost_; }

 private:
  bool put(const char* bytes, size_t length);
  bool isThere() const;
  void rotate();
  /** Now and then, whether the file that is written to still has its name. */
  void look();

  int folder_;
  int file_ = -1;
  uint64_t limit_;
  uint64_t size_ = 0;
  uint64_t lost_ = 0;
  uint64_t untold_ = 0;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace oomtune
