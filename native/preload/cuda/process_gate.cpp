#include "process_gate.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>

namespace oomtune::cuda::account {

namespace {

BudgetGate theGate;
std::atomic<int> underWay{0};
void (*forget)() = nullptr;

enum Lineage : int { kOwn, kForked, kAnew };
std::atomic<int> lineage{kOwn};

void afterFork() {
  // Cheap, as most children only call exec: the slot is taken when the child first counts something.
  lineage.store(kForked);
}

/** In a forked child: run by its first thread that counts; the others wait. */
void startAnew() {
  int expected = kForked;
  if (lineage.compare_exchange_strong(expected, kAnew)) {
    underWay.store(0);
    theGate.forked();
    forget();
    lineage.store(kOwn, std::memory_order_release);
  }
  while (lineage.load(std::memory_order_acquire) != kOwn) sched_yield();
}

}  // namespace

bool attachGate(const char* path, void (*inChild)()) {
  if (!theGate.attach(path)) return false;
  forget = inChild;
  pthread_atfork(nullptr, nullptr, afterFork);
  return true;
}

BudgetGate& gate() {
  if (__builtin_expect(lineage.load(std::memory_order_acquire) != kOwn, 0)) startAnew();
  return theGate;
}

bool gateIsOwn() { return lineage.load() == kOwn; }

DriverCall::DriverCall() { underWay.fetch_add(1); }
DriverCall::~DriverCall() { underWay.fetch_sub(1); }
bool driverCallUnderWay() { return underWay.load() != 0; }

void markBlind(Blind reason) { gate().markBlind(reason); }

}  // namespace oomtune::cuda::account
