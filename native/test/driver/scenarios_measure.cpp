// What no hook sees, and how it is measured.
#include <pthread.h>
#include <unistd.h>

#include "scenarios.h"

void scenarioOverheadGrows() {  // loading a module takes 64 MiB that no hook sees
  begin();
  void* module = nullptr;
  Address address = 0;
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
  CHECK_EQUAL(allocate(&address, 350 * MiB), kOutOfMemory);
  CHECK_EQUAL(overhead(), 164 * MiB);
  CHECK_EQUAL(allocate(&address, 348 * MiB), 0);
  CHECK_EQUAL(committed(), 512 * MiB);
}

void scenarioBlind() {  // 5 GiB that no hook sees
  begin();
  void* module = nullptr;
  Address address = 0;
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
  CHECK_EQUAL(ledger().blind.load(), 0);
  CHECK_EQUAL(allocate(&address, 8060 * MiB), kOutOfMemory);
  CHECK_EQUAL(ledger().blind.load(), oomtune::kBlindUnseen);
}

void scenarioLag() {  // NVML shows freed memory for some milliseconds more
  begin();
  Address first = 0;
  Address second = 0;
  for (int round = 0; round < 5; ++round) {
    CHECK_EQUAL(allocate(&first, 200 * MiB), 0);
    CHECK_EQUAL(allocate(&second, 212 * MiB), 0);
    CHECK_EQUAL(release(first), 0);
    CHECK_EQUAL(allocate(&first, 200 * MiB), 0);  // what was freed can be had again at once
    CHECK_EQUAL(committed(), 512 * MiB);
    CHECK_EQUAL(release(first), 0);
    CHECK_EQUAL(release(second), 0);
  }
  CHECK_EQUAL(refusedCalls(), 0);
  CHECK_EQUAL(peak(), 512 * MiB);
}

void scenarioSpike() {
  // One of NVML's answers takes 200 ms, as while another process makes its context (FAKE_NVML_SLOW): what modules take
  // afterwards is seen at the next allocations all the same, and at once by who asks what is held.
  begin();
  void* module = nullptr;
  Address address = 0;
  CHECK_EQUAL(setenv("FAKE_NVML_SLOW", "100000", 1), 0);
  usleep(60000);  // the last figure is old enough to be asked for anew
  CHECK_EQUAL(allocate(&address, 2 * MiB), 0);
  CHECK_EQUAL(unsetenv("FAKE_NVML_SLOW"), 0);
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
  for (int wait = 0; wait < 10; ++wait) {  // one is enough, unless the machine is busy and the next answer is late, too
    usleep(400000);
    CHECK_EQUAL(allocate(&address, 2 * MiB), 0);
    if (overhead() == 164 * MiB) break;
    CHECK_EQUAL(release(address), 0);
  }
  CHECK_EQUAL(overhead(), 164 * MiB);
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_live")(0)), 232 * MiB);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_peak")(0)), 232 * MiB);
}

void scenarioGrowsAtEnd() {  // the last thing that happens takes 64 MiB: the ledger knows after the end
  begin();
  void* module = nullptr;
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
}

void scenarioSwap() {
  // While NVML is asked (FAKE_NVML_SLOW: 30 ms before it looks and 30 after), another thread frees, and takes as much
  // again once NVML has looked: the sums are the same before and after, and yet the figure in between was another.
  begin();
  static Address held = 0;
  Address rest = 0;
  CHECK_EQUAL(allocate(&held, 10 * MiB), 0);
  static Context context = nullptr;
  CHECK_EQUAL((call<Result(Context*)>("cuCtxGetCurrent", &context)), 0);
  pthread_t thread{};
  CHECK_EQUAL(pthread_create(
                  &thread, nullptr,
                  [](void*) -> void* {
                    CHECK_EQUAL((call<Result(Context)>("cuCtxSetCurrent", context)), 0);
                    usleep(15000);
                    CHECK_EQUAL(release(held), 0);
                    usleep(30000);
                    CHECK_EQUAL(allocate(&held, 10 * MiB), 0);
                    return nullptr;
                  },
                  nullptr),
              0);
  CHECK_EQUAL(allocate(&rest, 390 * MiB), 0);
  pthread_join(thread, nullptr);
  CHECK_EQUAL(overhead(), 100 * MiB);
  CHECK_EQUAL(live(), 500 * MiB);
}

void scenarioSilent() {  // the driver stops telling what its pools hold, as it may while it shuts down
  begin();
  Address address = 0;
  CHECK_EQUAL((call<Result(Address*, size_t, Stream)>("cuMemAllocAsync", &address, size_t{64 * MiB}, Stream{})), 0);
  CHECK_EQUAL(setenv("FAKE_FAIL", "cuMemPoolGetAttribute:1+:4", 1), 0);
}

void scenarioContainer() {  // the driver knows our processes by pids that mean nothing here
  begin();
  Address address = 0;
  CHECK_EQUAL(ledger().devices[1].measured.load(), oomtune::kMeasuredByDevice);
  CHECK_EQUAL(overhead(), 100 * MiB);
  CHECK_EQUAL(allocate(&address, 50 * MiB), 0);
  int ready[2];
  int leave[2];
  CHECK_EQUAL(pipe(ready), 0);
  CHECK_EQUAL(pipe(leave), 0);
  char word = 0;
  const char* const self = "/proc/self/exe";
  const pid_t child = fork();
  if (child == 0) {
    CHECK_EQUAL(dup2(ready[1], 8), 8);
    CHECK_EQUAL(dup2(leave[0], 9), 9);
    close(leave[1]);
    execl(self, self, "ContainerNeighbour", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ready[1]);
  CHECK_EQUAL(read(ready[0], &word, 1), 1);
  CHECK_EQUAL(overhead(), 200 * MiB);  // both contexts, whoever of us found them
  CHECK_EQUAL(live(), 280 * MiB);
  CHECK_EQUAL(allocate(&address, 234 * MiB), kOutOfMemory);
  CHECK_EQUAL(allocate(&address, 232 * MiB), 0);
  CHECK_EQUAL(committed(), 512 * MiB);
  close(leave[1]);
  CHECK_EQUAL(exitOf(child), 0);
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(allocate(&address, 362 * MiB), 0);  // with the other process went its memory
  CHECK_EQUAL(overhead(), 100 * MiB);
}

void scenarioContainerNeighbour() {
  begin();
  Address address = 0;
  char word = 0;
  CHECK_EQUAL(allocate(&address, 30 * MiB), 0);
  CHECK_EQUAL(write(8, &word, 1), 1);
  CHECK_EQUAL(read(9, &word, 1), 0);
}
