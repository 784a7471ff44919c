// One of the job's output streams on its way to the supervisor's own stdout or stderr. Never blocks: a slow
// reader makes the job wait (as a pipe would), a reader that is gone is dropped, and signals are handled meanwhile.
#pragma once

#include <cstddef>

namespace oomtune {

class Tee {
 public:
  Tee() = default;
  ~Tee();
  Tee(const Tee&) = delete;
  Tee& operator=(const Tee&) = delete;

  /** Takes ownership of the descriptor, and closes it. */
  void open(int descriptor);
  void shut();
  bool isOpen() const { return file_ >= 0; }
  /** Room for one more chunk of kChunk bytes. */
  bool ready() const { return file_ < 0 || pending_ == 0; }
  bool pending() const { return file_ >= 0 && pending_ > 0; }
  int descriptor() const { return file_; }
  /** At most kChunk bytes, and only when ready(). */
  void take(const char* bytes, size_t length);
  /** Writes what the reader takes now. */
  void flush();

  static constexpr size_t kChunk = 64UL * 1024;

 private:
  int file_ = -1;
  bool blocking_ = true;  // our descriptor shares its flags with other programs: they must not be changed
  bool socket_ = false;
  bool regular_ = false;
  size_t pending_ = 0;
  size_t start_ = 0;
  char buffer_[kChunk];
};

}  // namespace oomtune
