// A log of the job: a file (`log`), and another (`log.1`) with what came before it. Written by the supervisor alone,
// never larger than twice the limit, whatever the job prints. One that is deleted or moved away is made anew.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace oomtune {

class Log {
 public:
  /** `folder` is a descriptor of the launch folder, `limit` the most bytes of one log file. */
  Log(int folder, uint64_t limit, const char* name = "log")
      : name_(name), older_(name_ + ".1"), folder_(folder), limit_(limit) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /** 0 or an errno. The file is made anew, 0600. */
  int open();
  /** Never fails: bytes that a full disk does not take are counted, and a line says so once there is room again. */
  void write(const char* bytes, size_t length);
  /** Bytes that could not be written. */
  uint64_t lost() const { return lost_; }

 private:
  bool put(const char* bytes, size_t length);
  bool isThere() const;
  void rotate();
  /** Opens a new file if the current one was moved or deleted; checks from time to time only. */
  void reopenIfMoved();

  std::string name_;
  std::string older_;
  int folder_;
  int file_ = -1;
  uint64_t limit_;
  uint64_t size_ = 0;
  uint64_t lost_ = 0;
  uint64_t unreported_ = 0;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace oomtune
