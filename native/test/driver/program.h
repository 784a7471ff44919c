// What the scenarios share: the driver as a program finds it, and the ledger as a watcher sees it.
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "driver_types.h"
#include "file.h"

using namespace oomtune::cuda;
using oomtune::Ledger;

constexpr uint64_t MiB = 1ULL << 20;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

#define CHECK_EQUAL(left, right)                                                                           \
  do {                                                                                                     \
    const long long l = static_cast<long long>(left);                                                      \
    const long long r = static_cast<long long>(right);                                                     \
    if (l != r) {                                                                                          \
      fprintf(stderr, "%s:%d: %s is %lld, expected %s = %lld\n", __FILE__, __LINE__, #left, l, #right, r); \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

inline void* library() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (handle == nullptr) fprintf(stderr, "%s\n", dlerror());
  CHECK(handle != nullptr);
  return handle;
}

template <class Function>
Function* find(const char* name) {
  void* at = dlsym(library(), name);
  if (at == nullptr) fprintf(stderr, "no %s\n", name);
  CHECK(at != nullptr);
  return reinterpret_cast<Function*>(at);
}

/** call<Result(Address*, size_t)>("cuMemAlloc_v2", &address, size) */
template <class Function, class... Arguments>
Result call(const char* name, Arguments... arguments) {
  return find<Function>(name)(arguments...);
}

inline Result start() { return call<Result(unsigned)>("cuInit", 0u); }
inline Result makeContext(Context* context, Device device = 0) {
  return call<Result(Context*, unsigned, Device)>("cuCtxCreate_v2", context, 0u, device);
}
inline Result allocate(Address* address, size_t size) {
  return call<Result(Address*, size_t)>("cuMemAlloc_v2", address, size);
}
inline Result release(Address address) { return call<Result(Address)>("cuMemFree_v2", address); }

inline void begin() {
  Context context = nullptr;
  CHECK_EQUAL(start(), 0);
  CHECK_EQUAL(makeContext(&context), 0);
}

inline Ledger& ledger() {
  static Ledger* mapped = oomtune::mapLedger(getenv("OOMTUNE_LEDGER"), false);
  CHECK(mapped != nullptr);
  return *mapped;
}

inline uint64_t live(int place = 1) { return ledger().devices[place].live.load(); }
inline uint64_t committed(int place = 1) { return ledger().devices[place].committed.load(); }
inline uint64_t peak(int place = 1) { return ledger().devices[place].peak.load(); }
inline uint64_t refusedCalls() { return ledger().refused.load(); }

/** Sum over all processes. */
inline uint64_t kind(oomtune::Kind which, int place = 1) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < oomtune::kSlots; ++i) {
    if (ledger().keys[i].pid.load() != 0) sum += ledger().slots[i].devices[place].kinds[which].load();
  }
  return sum;
}
inline uint64_t overhead(int place = 1) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < oomtune::kSlots; ++i) {
    if (ledger().keys[i].pid.load() != 0) sum += ledger().slots[i].devices[place].overhead.load();
  }
  return sum;
}

/** 128 + n: signal n ended it. */
inline int exitOf(pid_t child) {
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Named {
  const char* name;
  void (*run)();
};
