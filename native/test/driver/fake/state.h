// What the fake driver and the fake NVML share: a file that plays the hardware. Every process of a test maps it.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace fake {

constexpr int kDevices = 4;
constexpr int kProcesses = 64;
constexpr uint64_t kPage = 2ULL << 20;

struct Process {
  int pid;
  uint64_t bytes[kDevices];
  uint64_t ghost[kDevices];  // freed, but still shown by NVML
  uint64_t ghostUntil;
  uint64_t inArraysOnly[kDevices];  // not in NVML's figure of the process, though in the device's
};

struct State {
  pthread_mutex_t mutex;
  uint64_t capacity;
  Process processes[kProcesses];
};

inline uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text != nullptr && text[0] != '\0' ? strtoull(text, nullptr, 0) : otherwise;
}

inline uint64_t now() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<uint64_t>(at.tv_sec) * 1000 + static_cast<uint64_t>(at.tv_nsec) / 1000000;
}

inline State* state() {
  static State* mapped = nullptr;
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&once);
  if (mapped == nullptr) {
    const char* path = getenv("FAKE_STATE");
    int fd = path != nullptr ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX) != 0) abort();  // of several processes the first makes it
    bool fresh = fd < 0 || lseek(fd, 0, SEEK_END) < static_cast<off_t>(sizeof(State));
    if (fd >= 0 && fresh && ftruncate(fd, sizeof(State)) != 0) abort();
    void* memory =
        mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) abort();
    mapped = static_cast<State*>(memory);
    if (fresh) {
      pthread_mutexattr_t attributes;
      pthread_mutexattr_init(&attributes);
      pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
      pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
      pthread_mutex_init(&mapped->mutex, &attributes);
      mapped->capacity = number("FAKE_CAPACITY", 1ULL << 30);
    }
    if (fd >= 0) flock(fd, LOCK_UN);  // the mapping would hold it
    if (fd >= 0) close(fd);
  }
  pthread_mutex_unlock(&once);
  return mapped;
}

class Locked {
 public:
  Locked() : at_(state()) {
    if (pthread_mutex_lock(&at_->mutex) == EOWNERDEAD) pthread_mutex_consistent(&at_->mutex);
    // What the dead held is free again, as with the real kernel driver.
    for (Process& process : at_->processes) {
      if (process.pid != 0 && kill(process.pid, 0) != 0 && errno == ESRCH) memset(&process, 0, sizeof process);
    }
  }
  ~Locked() { pthread_mutex_unlock(&at_->mutex); }

  uint64_t used(int device) const {
    uint64_t sum = 0;
    for (const Process& process : at_->processes) sum += process.bytes[device];
    return sum;
  }

  Process& mine() {
    const int pid = static_cast<int>(getpid());
    Process* free = nullptr;
    for (Process& process : at_->processes) {
      if (process.pid == pid) return process;
      if (process.pid == 0 && free == nullptr) free = &process;
    }
    if (free == nullptr) abort();
    free->pid = pid;
    return *free;
  }

  State* operator->() const { return at_; }

 private:
  State* at_;
};

}  // namespace fake
