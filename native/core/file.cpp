#include "file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "process.h"

namespace oomtune {

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
  if (error != 0) {
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

Ledger* mapLedger(const char* path, bool writable) {
  int saved = errno;
  int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    errno = saved;
    return nullptr;
  }
  // Not fstat(): its symbol is as new as glibc 2.33. A seek to the end tells the size, and fails on a pipe.
  off_t size = lseek(fd, 0, SEEK_END);
  void* memory = MAP_FAILED;
  if (size == static_cast<off_t>(sizeof(Ledger))) {
    memory = mmap(nullptr, sizeof(Ledger), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  }
  close(fd);
  errno = saved;
  if (memory == MAP_FAILED) return nullptr;
  Ledger* ledger = static_cast<Ledger*>(memory);
  if (ledgerSound(ledger, static_cast<uint64_t>(size))) return ledger;
  munmap(memory, sizeof(Ledger));
  return nullptr;
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
