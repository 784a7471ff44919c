#include "log.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace oomtune {

Log::~Log() {
  if (file_ >= 0) close(file_);
}

int Log::open() {
  file_ = openat(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  size_ = 0;
  return file_ < 0 ? errno : 0;
}

bool Log::isThere() const {
  // Not fstat() and fstatat(): these are as new as glibc 2.33 under their plain names
  struct stat named{};
  struct stat held{};
  return syscall(SYS_newfstatat, folder_, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         syscall(SYS_fstat, file_, &held) == 0 && named.st_ino == held.st_ino && named.st_dev == held.st_dev;
}

void Log::rotate() {
  // If the log was moved away or replaced, the new file of its name is not ours
  if (isThere() ? renameat(folder_, name_.c_str(), folder_, older_.c_str()) != 0
                : unlinkat(folder_, name_.c_str(), 0) != 0 && errno != ENOENT) {
    if (ftruncate(file_, 0) == 0) size_ = 0;  // log.1 may be a folder, say: the size stays bounded
    return;
  }
  const int old = file_;
  if (open() == 0) {
    if (old >= 0) close(old);
  } else {
    file_ = old;  // no descriptor to be had: go on in the file that is now log.1
    size_ = 0;
  }
}

void Log::reopenIfMoved() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::seconds(1);
  if (!isThere()) rotate();
}

bool Log::put(const char* bytes, size_t length) {
  while (length > 0) {
    const ssize_t done = ::write(file_, bytes, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes += done;
    length -= static_cast<size_t>(done);
    size_ += static_cast<uint64_t>(done);
  }
  return true;
}

void Log::write(const char* bytes, size_t length) {
  reopenIfMoved();
  while (length > 0) {
    if (size_ >= limit_) rotate();
    const uint64_t room = limit_ > size_ ? limit_ - size_ : limit_;
    const size_t part = length < room ? length : static_cast<size_t>(room);
    if (unreported_ > 0) {
      char note[96];
      const int size = snprintf(note, sizeof note, "\n[oomtune: %llu bytes of output were lost: the disk was full]\n",
                                static_cast<unsigned long long>(unreported_));
      if (size > 0 && put(note, static_cast<size_t>(size))) unreported_ = 0;
    }
    if (unreported_ > 0 || !put(bytes, part)) {
      lost_ += part;
      unreported_ += part;
    }
    bytes += part;
    length -= part;
  }
}

}  // namespace oomtune
