#include "file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "process.h"

namespace oomtune {

namespace {

// Of the one mapping that guardLedger() was given.
std::atomic<char*> guarded{nullptr};

/** Replaces the missing page by an empty, private one: the ledger then fails its checks, or counts nothing. */
void replaceMapping(int signal, siginfo_t* info, void*) {
  char* from = guarded.load();
  char* at = static_cast<char*>(info->si_addr);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (from != nullptr && at >= from && at < from + sizeof(Ledger) &&
      mmap(from, sizeof(Ledger), PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED) {
    return;
  }
  ::signal(signal, SIG_DFL);  // not our mapping: the signal comes again at once, with the default action
}

}  // namespace

void guardLedger(Ledger* ledger) {
  guarded.store(reinterpret_cast<char*>(ledger));
  struct sigaction action{};
  action.sa_sigaction = replaceMapping;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGBUS, &action, nullptr);
}

int createLedger(const char* path, const DeviceSetup* devices, uint32_t count) {
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int error = posix_fallocate(fd, 0, static_cast<off_t>(sizeof(Ledger)));
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  close(fd);
  if (error != 0 || memory == MAP_FAILED) {
    unlink(path);
    return error;
  }
  initLedger(static_cast<Ledger*>(memory), devices, count);
  munmap(memory, sizeof(Ledger));
  return 0;
}

void initLedger(Ledger* ledger, const DeviceSetup* devices, uint32_t count) {
  for (DeviceEntry& device : ledger->devices) device.budget.store(kNoBudget);
  for (uint32_t i = 0; i < count; ++i) {
    if (devices[i].index >= kDevices) continue;
    DeviceEntry& device = ledger->devices[devices[i].index];
    device.budget.store(devices[i].budget);
    std::strncpy(device.name, devices[i].name, sizeof device.name - 1);
    std::strncpy(device.uuid, devices[i].uuid, sizeof device.uuid - 1);
    device.present.store(1);
  }
  ledger->version.store(kLedgerVersion);
  ledger->deviceCount.store(kDevices);
  ledger->slotCount.store(kSlots);
  ledger->kindCount.store(kKinds);
  ledger->refusalCount.store(kRefusals);
  ledger->bytes.store(sizeof(Ledger));
  ledger->createdNanoseconds.store(nowNanoseconds());
  ledger->magic.store(kLedgerMagic);
}

namespace {

/**
 * The file's descriptor, or -1 unless it is a file of a ledger's size. Not fstat(): its symbol is as new as glibc 2.33.
 * A seek to the end tells the size, and fails on a pipe.
 */
int openLedger(const char* path, int flags) {
  const int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  if (lseek(fd, 0, SEEK_END) == static_cast<off_t>(sizeof(Ledger))) return fd;
  close(fd);
  return -1;
}

}  // namespace

Ledger* mapLedger(const char* path, bool writable) {
  const int saved = errno;
  const int fd = openLedger(path, writable ? O_RDWR : O_RDONLY);
  void* memory = MAP_FAILED;
  if (fd >= 0) {
    memory = mmap(nullptr, sizeof(Ledger), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
  }
  errno = saved;
  if (memory == MAP_FAILED) return nullptr;
  Ledger* ledger = static_cast<Ledger*>(memory);
  if (ledgerSound(ledger, sizeof(Ledger))) return ledger;
  munmap(memory, sizeof(Ledger));
  return nullptr;
}

bool copyLedger(const char* path, Ledger* out) {
  const int fd = openLedger(path, O_RDONLY);
  if (fd < 0) return false;
  char* bytes = reinterpret_cast<char*>(out);
  size_t count = 0;
  while (count < sizeof(Ledger)) {
    const ssize_t got = pread(fd, bytes + count, sizeof(Ledger) - count, static_cast<off_t>(count));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    count += static_cast<size_t>(got);
  }
  close(fd);
  return count == sizeof(Ledger) && ledgerSound(out, sizeof(Ledger));
}

void trimLedger(const char* path) {
  const int fd = openLedger(path, O_RDWR);
  if (fd < 0) return;
  constexpr off_t kPage = 4096;
  const off_t size = static_cast<off_t>(sizeof(Ledger));
  off_t empty = 0;  // where the run of empty pages begins
  auto give = [&](off_t end) {
    // Not on every file system: there it stays as large as it was
    if (end > empty && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, empty, end - empty) != 0) return;
  };
  for (off_t at = 0; at < size; at += kPage) {
    static const char kZeros[kPage] = {};
    char page[kPage];
    const ssize_t got = pread(fd, page, sizeof page, at);
    if (got > 0 && std::memcmp(page, kZeros, static_cast<size_t>(got)) == 0) continue;
    give(at);
    empty = at + kPage;
  }
  give(size);
  close(fd);
}

void unmapLedger(Ledger* ledger) {
  if (ledger != nullptr) munmap(ledger, sizeof(Ledger));
}

bool ledgerSound(const Ledger* ledger, uint64_t fileBytes) {
  return fileBytes == sizeof(Ledger) && ledger->magic.load() == kLedgerMagic &&
         ledger->version.load() == kLedgerVersion && ledger->bytes.load() == sizeof(Ledger) &&
         ledger->deviceCount.load() == kDevices && ledger->slotCount.load() == kSlots &&
         ledger->kindCount.load() == kKinds && ledger->refusalCount.load() == kRefusals;
}

}  // namespace oomtune
