#include "json.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "process.h"

namespace oomtune {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      out += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return out + "\"";
}

std::string isoTime(uint64_t nanoseconds) {
  const time_t seconds = static_cast<time_t>(nanoseconds / 1000000000ULL);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[40];
  const size_t length = strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char rest[8];
  snprintf(rest, sizeof rest, ".%03uZ", static_cast<unsigned>(nanoseconds / 1000000ULL % 1000));
  return std::string(date, length) + rest;
}

std::string signalName(int signal) {
  switch (signal) {
    case SIGHUP: return "SIGHUP";
    case SIGINT: return "SIGINT";
    case SIGQUIT: return "SIGQUIT";
    case SIGILL: return "SIGILL";
    case SIGTRAP: return "SIGTRAP";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGKILL: return "SIGKILL";
    case SIGUSR1: return "SIGUSR1";
    case SIGSEGV: return "SIGSEGV";
    case SIGUSR2: return "SIGUSR2";
    case SIGPIPE: return "SIGPIPE";
    case SIGALRM: return "SIGALRM";
    case SIGTERM: return "SIGTERM";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    case SIGVTALRM: return "SIGVTALRM";
    case SIGPROF: return "SIGPROF";
    case SIGIO: return "SIGIO";
    case SIGSYS: return "SIGSYS";
    default: return "SIG" + std::to_string(signal);
  }
}

namespace {

constexpr off_t kReserved = 4096;  // a record is shorter than this, and a file system deals out no less

int openSide(int folder, const char* name) {
  const std::string side = std::string(name) + ".tmp";
  // Not cut off: the space that was reserved for it is used.
  return openat(folder, side.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/** What stands in the way of a file and is none (a folder that the job put there) goes by another name. */
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
  if (error == 0) fsync(folder);  // what it holds is there in any case, whole, under one name or the other
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
