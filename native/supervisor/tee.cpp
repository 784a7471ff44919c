#include "tee.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace oomtune {

Tee::~Tee() { shut(); }

void Tee::shut() {
  if (file_ >= 0) close(file_);
  file_ = -1;
  pending_ = 0;
}

void Tee::open(int descriptor) {
  struct stat about{};
  if (fstat(descriptor, &about) != 0) {
    close(descriptor);
    return;
  }
  file_ = descriptor;
  socket_ = S_ISSOCK(about.st_mode);
  regular_ = S_ISREG(about.st_mode);
  if (!S_ISFIFO(about.st_mode) && !S_ISCHR(about.st_mode)) return;
  // A second open of the same pipe or terminal has its own flags, so only ours stops blocking.
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  const int own = ::open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own < 0) return;
  close(descriptor);
  file_ = own;
  blocking_ = false;
}

void Tee::take(const char* bytes, size_t length) {
  if (file_ < 0) return;
  memcpy(buffer_, bytes, length);
  start_ = 0;
  pending_ = length;
  flush();
}

void Tee::flush() {
  while (file_ >= 0 && pending_ > 0) {
    ssize_t done = 0;
    if (socket_) {
      done = send(file_, buffer_ + start_, pending_, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (regular_ || !blocking_) {
      done = write(file_, buffer_ + start_, pending_);
    } else {
      // Where it could not be opened again: a writable pipe takes PIPE_BUF bytes without blocking.
      pollfd state{file_, POLLOUT, 0};
      if (poll(&state, 1, 0) == 0) return;
      done = write(file_, buffer_ + start_, pending_ < PIPE_BUF ? pending_ : PIPE_BUF);
    }
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (done <= 0) {
      shut();  // nobody reads it any more; the log goes on
      return;
    }
    start_ += static_cast<size_t>(done);
    pending_ -= static_cast<size_t>(done);
  }
}

}  // namespace oomtune
