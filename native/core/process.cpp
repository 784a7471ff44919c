#include "process.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace oomtune {

namespace {

// Raw calls: the wrappers carry newer glibc versions (gettid 2.30), and the text is needed inside malloc hooks.
// The length, or minus an errno.
long readWhole(const char* path, char* buffer, size_t capacity) {
  int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return -errno;
  size_t filled = 0;
  int error = 0;
  while (filled < capacity) {
    ssize_t got = read(fd, buffer + filled, capacity - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  close(fd);
  return error != 0 ? -error : static_cast<long>(filled);
}

enum class Found { kYes, kNo, kUnknown };

char* putDecimal(char* at, uint64_t value) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (count > 0) *at++ = digits[--count];
  return at;
}

bool takeNumber(const char** at, const char* end, uint64_t* out) {
  const char* p = *at;
  while (p < end && *p == ' ') ++p;
  bool negative = p < end && *p == '-';
  if (negative) ++p;
  if (p >= end || *p < '0' || *p > '9') return false;
  uint64_t value = 0;
  for (; p < end && *p >= '0' && *p <= '9'; ++p) value = value * 10 + static_cast<uint64_t>(*p - '0');
  *out = negative ? 0 : value;
  *at = p;
  return true;
}

}  // namespace

bool parseStat(const char* text, uint64_t length, ProcessStat* out) {
  const char* end = text + length;
  const char* close = nullptr;
  for (const char* p = end; p > text; --p) {
    if (p[-1] == ')') {
      close = p;
      break;
    }
  }
  if (close == nullptr || end - close < 3 || close[0] != ' ') return false;
  *out = ProcessStat{};
  out->state = close[1];
  const char* at = close + 2;
  for (int field = 4; field <= 22; ++field) {
    uint64_t value = 0;
    if (!takeNumber(&at, end, &value)) return false;
    if (field == 4) out->parent = static_cast<uint32_t>(value);
    if (field == 5) out->group = static_cast<uint32_t>(value);
    if (field == 6) out->session = static_cast<uint32_t>(value);
    if (field == 20) out->threads = static_cast<uint32_t>(value);
    if (field == 22) out->start = value;
  }
  return true;
}

namespace {

Found find(uint64_t pid, ProcessStat* out) {
  char path[40] = "/proc/";
  char* at = putDecimal(path + 6, pid);
  std::memcpy(at, "/stat", 6);
  char text[1024];
  const int saved = errno;
  const long length = readWhole(path, text, sizeof text);
  bool gone = length == -ESRCH;
  if (length == -ENOENT) gone = access("/proc/self/stat", F_OK) == 0;
  errno = saved;
  if (gone) return Found::kNo;
  return length > 0 && parseStat(text, static_cast<uint64_t>(length), out) ? Found::kYes : Found::kUnknown;
}

}  // namespace

bool readStat(uint64_t pid, ProcessStat* out) { return find(pid, out) == Found::kYes; }

uint32_t currentPid() { return static_cast<uint32_t>(syscall(SYS_getpid)); }

uint32_t currentTid() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

uint64_t currentPidNamespace() {
  char target[64];
  int saved = errno;
  ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target);  // "pid:[4026531836]"
  errno = saved;
  uint64_t inode = 0;
  for (ssize_t i = 0; i < length; ++i) {
    if (target[i] >= '0' && target[i] <= '9') inode = inode * 10 + static_cast<uint64_t>(target[i] - '0');
  }
  return inode;
}

uint64_t currentImage() {
  uint64_t image = 0;
  unsigned long random = getauxval(AT_RANDOM);
  if (random != 0) std::memcpy(&image, reinterpret_cast<const void*>(random), sizeof image);
  return image | 1;  // never 0, which means "not yet known"
}

bool processExists(uint64_t pid, uint64_t start) {
  ProcessStat stat{};
  const Found found = find(pid, &stat);
  if (found != Found::kYes) return found == Found::kUnknown;
  if (start != 0 && stat.start != start) return false;
  // A leader that called pthread_exit is a zombie too while its other threads run on.
  const bool zombie = (stat.state == 'Z' || stat.state == 'X' || stat.state == 'x') && stat.threads <= 1;
  return !zombie;
}

uint64_t nowNanoseconds() {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace oomtune
