// Threads and processes: nobody passes the budget together, and the dead give back what they held.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "fake/state.h"
#include "scenarios.h"

namespace {

std::atomic<bool> over{false};

void* storm(void* argument) {
  unsigned seed = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument));
  CHECK_EQUAL((call<Result(Context)>("cuCtxSetCurrent", *static_cast<Context*>(argument))), 0);
  Address held[16] = {};
  auto* alloc = find<Result(Address*, size_t)>("cuMemAlloc_v2");
  auto* release = find<Result(Address)>("cuMemFree_v2");
  for (int round = 0; round < 3000; ++round) {
    Address& slot = held[rand_r(&seed) % 16];
    if (slot != 0) {
      CHECK_EQUAL(release(slot), 0);
      slot = 0;
    } else {
      Result result = alloc(&slot, (rand_r(&seed) % 24 + 1) * MiB / 2);
      CHECK(result == 0 || result == kOutOfMemory);
      if (result != 0) slot = 0;
    }
    if (committed() > 512 * MiB) over.store(true);
  }
  for (Address address : held) {
    if (address != 0) CHECK_EQUAL(release(address), 0);
  }
  return nullptr;
}

// Pools and physical memory at the same time, so that measurements meet calls that are under way.
void* otherStorm(void* argument) {
  unsigned seed = 7;
  CHECK_EQUAL((call<Result(Context)>("cuCtxSetCurrent", *static_cast<Context*>(argument))), 0);
  auto* allocAsync = find<Result(Address*, size_t, Stream)>("cuMemAllocAsync");
  auto* freeAsync = find<Result(Address, Stream)>("cuMemFreeAsync");
  auto* create = find<Result(Handle*, size_t, const AllocationProp*, unsigned long long)>("cuMemCreate");
  auto* map = find<Result(Address, size_t, size_t, Handle, unsigned long long)>("cuMemMap");
  auto* unmap = find<Result(Address, size_t)>("cuMemUnmap");
  auto* drop = find<Result(Handle)>("cuMemRelease");
  AllocationProp prop{};
  prop.location = Location{kLocationDevice, 0};
  for (int round = 0; round < 2000; ++round) {
    Address address = 0;
    Handle handle = 0;
    const size_t size = (rand_r(&seed) % 8 + 1) * 2 * MiB;
    if (allocAsync(&address, size, Stream{}) == 0) CHECK_EQUAL(freeAsync(address, Stream{}), 0);
    if (create(&handle, size, &prop, 0) == 0) {
      const Address range = (1ULL << 40) + reinterpret_cast<uintptr_t>(&handle) / 4096 * 4096 * 64;
      CHECK_EQUAL(map(range, size, 0, handle, 0), 0);
      CHECK_EQUAL(drop(handle), 0);
      CHECK_EQUAL(unmap(range, size), 0);
    }
    if (committed() > 512 * MiB) over.store(true);
  }
  return nullptr;
}

}  // namespace

void scenarioStorm() {
  CHECK_EQUAL(start(), 0);
  static Context context = nullptr;
  CHECK_EQUAL(makeContext(&context), 0);
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], nullptr, i < 5 ? storm : otherStorm, &context), 0);
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  CHECK(!over.load());
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
  CHECK_EQUAL(kind(oomtune::kVmm), 0);
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 412 * MiB), 0);  // a measurement at rest: nothing was lost
  CHECK_EQUAL(overhead(), 100 * MiB);
}

void scenarioFork() {
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
  pid_t child = fork();
  if (child == 0) _exit(0);  // as data-loader workers do: it never touches the device
  CHECK_EQUAL(exitOf(child), 0);
  CHECK_EQUAL(live(), 150 * MiB);
  child = fork();
  if (child == 0) {
    // The child holds nothing of its own, whatever its copy of the parent's memory says.
    CHECK_EQUAL((find<uint64_t(int)>("oomtune_live")(0)), 0);
    usleep(120000);  // long enough for a measurement to be due
    CHECK_EQUAL((find<uint64_t(int)>("oomtune_peak")(0)), 0);
    _exit(0);
  }
  CHECK_EQUAL(exitOf(child), 0);
  CHECK_EQUAL(live(), 150 * MiB);
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(live(), 100 * MiB);
}

void* askLive(void* gate) {
  pthread_barrier_wait(static_cast<pthread_barrier_t*>(gate));
  return reinterpret_cast<void*>(find<uint64_t(int)>("oomtune_live")(0));
}

void scenarioForkThreads() {  // the threads of a forked child all come at once
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
  const pid_t child = fork();
  if (child == 0) {
    pthread_t threads[8];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, nullptr, 8);
    for (pthread_t& thread : threads) CHECK_EQUAL(pthread_create(&thread, nullptr, askLive, &gate), 0);
    for (pthread_t thread : threads) {
      void* seen = nullptr;
      pthread_join(thread, &seen);
      CHECK(seen == nullptr);
    }
    _exit(0);
  }
  CHECK_EQUAL(exitOf(child), 0);
  CHECK_EQUAL(live(), 150 * MiB);
}

void scenarioRanks() {
  const uint64_t budget = ledger().devices[1].budget.load();
  const uint64_t context = fake::number("FAKE_CONTEXT", 100 * MiB);
  // Four processes grab what they can get; together they stay within the budget, contexts included.
  int grab[2];
  int leave[2];
  int done[2];
  CHECK_EQUAL(pipe(grab), 0);
  CHECK_EQUAL(pipe(leave), 0);
  CHECK_EQUAL(pipe(done), 0);
  char word = 0;
  pid_t children[4];
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    close(grab[1]);
    close(leave[1]);
    begin();
    CHECK_EQUAL(write(done[1], &word, 1), 1);
    CHECK_EQUAL(read(grab[0], &word, 1), 0);  // closed when all have their contexts
    Address address = 0;
    while (allocate(&address, 2 * MiB) == 0) {
    }
    CHECK(committed() <= budget);
    CHECK_EQUAL(write(done[1], &word, 1), 1);
    CHECK_EQUAL(read(leave[0], &word, 1), 0);
    _exit(0);
  }
  close(done[1]);  // a child that fails ends the reads below
  for (int i = 0; i < 4; ++i) CHECK_EQUAL(read(done[0], &word, 1), 1);
  close(grab[1]);
  for (int i = 0; i < 4; ++i) CHECK_EQUAL(read(done[0], &word, 1), 1);
  CHECK_EQUAL(committed(), budget);
  CHECK_EQUAL(overhead(), 4 * context);
  CHECK_EQUAL(kind(oomtune::kClassic), budget - 4 * context);
  close(leave[1]);
  for (pid_t child : children) CHECK_EQUAL(exitOf(child), 0);
}

void scenarioKilled() {
  int ready[2];
  CHECK_EQUAL(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    begin();
    Address address = 0;
    CHECK_EQUAL(allocate(&address, 400 * MiB), 0);
    char word = 0;
    CHECK_EQUAL(write(ready[1], &word, 1), 1);
    pause();
  }
  char word = 0;
  CHECK_EQUAL(read(ready[0], &word, 1), 1);
  CHECK_EQUAL(live(), 500 * MiB);
  kill(child, SIGKILL);
  CHECK_EQUAL(exitOf(child), 128 + SIGKILL);
  begin();  // what the dead held leaves room for the next one's context, and is no part of its peak
  CHECK_EQUAL(live(), 100 * MiB);
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 400 * MiB), 0);  // what the dead held was taken back
  CHECK_EQUAL(live(), 500 * MiB);
}

void scenarioLeak() {
  begin();
  Address address = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK_EQUAL(allocate(&address, 64 * 1024), 0);
  }
  // Never freed: it stays counted while the process lives, and is the test's to read afterwards.
  CHECK_EQUAL(kind(oomtune::kClassic), 1000 * 64 * 1024);
}
