#include "record_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "process.h"

namespace oomtune {

namespace {

constexpr off_t kReserved = 4096;  // a record is shorter than this, and file systems allocate no less

int openSide(int folder, const char* name) {
  const std::string side = std::string(name) + ".tmp";
  // Not truncated: the space that was reserved for it is used.
  return openat(folder, side.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/** Renames what is in the way and is no file (a folder that the job made, say). */
bool moveAside(int folder, const char* name) {
  const std::string aside = std::string(name) + "." + std::to_string(nowNanoseconds()) + ".aside";
  return renameat(folder, name, folder, aside.c_str()) == 0;
}

int putAll(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = pwrite(file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (put > 0) {
      done += static_cast<size_t>(put);
    } else if (put == 0 || errno != EINTR) {
      return put == 0 ? EIO : errno;
    }
  }
  return ftruncate(file, static_cast<off_t>(text.size())) == 0 ? 0 : errno;
}

}  // namespace

int writeRecord(int folder, const char* name, const std::string& text) {
  const std::string side = std::string(name) + ".tmp";
  const int file = openSide(folder, name);
  if (file < 0) return errno;
  int error = putAll(file, text);
  if (error == 0 && fsync(file) != 0) error = errno;
  if (error == 0 && renameat(folder, side.c_str(), folder, name) != 0) error = errno;
  if ((error == EISDIR || error == ENOTEMPTY || error == EEXIST) && moveAside(folder, name)) {
    error = renameat(folder, side.c_str(), folder, name) == 0 ? 0 : errno;
  }
  close(file);
  if (error == 0) fsync(folder);  // the record is on the disk in any case, under one name or the other
  return error;
}

int reserveRecord(int folder, const char* name) {
  const int file = openSide(folder, name);
  if (file < 0) return errno;
  const int error = posix_fallocate(file, 0, kReserved);
  close(file);
  return error;
}

}  // namespace oomtune
