#include "host_gate.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace oomtune {

namespace {

enum Attach : int { kUntried = 0, kTrying, kNothing, kAttached };

BudgetGate gate;
PointerTable pointers;
std::atomic<int> attach{kUntried};
__thread bool inside = false;

// Zero in a forked child, before any of its code has run: the kernel wipes this page, so that a handler of another
// library which allocates before ours, or a bare clone(), finds the same state. 1: ready, 2: being made anew.
std::atomic<uint32_t>* fresh = nullptr;
std::atomic<uint32_t> freshFallback{1};

void childForked() { fresh->store(0); }

bool tryAttach() {
  const char* path = getenv("OOMTUNE_LEDGER");
  if (path == nullptr || path[0] == '\0' || !gate.attach(path)) return false;
  if (gate.ledger()->devices[kHostDevice].present.load() != 1) return false;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fresh = page == MAP_FAILED ? &freshFallback : static_cast<std::atomic<uint32_t>*>(page);
  if (page != MAP_FAILED) madvise(page, 4096, MADV_WIPEONFORK);
  fresh->store(1);
  pthread_atfork(nullptr, nullptr, childForked);  // for kernels before 4.14, which know no wiping
  return true;
}

void makeAnew() {
  uint32_t expected = 0;
  if (fresh->compare_exchange_strong(expected, 2)) {
    pointers.inherit();
    gate.forked();
    fresh->store(1);
  }
  while (fresh->load() != 1) sched_yield();
}

}  // namespace

BudgetGate* hostGate() {
  if (__builtin_expect(attach.load(std::memory_order_acquire) != kAttached, 0)) {
    // Before libc is set up there is no environment: ask again later.
    if (environ == nullptr || inside) return nullptr;
    int expected = kUntried;
    if (attach.compare_exchange_strong(expected, kTrying)) {
      inside = true;
      int saved = errno;
      const bool attached = tryAttach();
      errno = saved;
      inside = false;
      attach.store(attached ? kAttached : kNothing, std::memory_order_release);
    }
    if (attach.load(std::memory_order_acquire) != kAttached) return nullptr;
  }
  if (inside) return nullptr;
  if (__builtin_expect(fresh->load(std::memory_order_acquire) != 1, 0)) makeAnew();
  return &gate;
}

PointerTable& table() { return pointers; }

}  // namespace oomtune
