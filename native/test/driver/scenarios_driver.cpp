// The ways to a function, and drivers that are older, newer, broken or not there.
#include "scenarios.h"

namespace {

using GetProc = Result(const char*, void**, int, uint64_t, int*);
using Alloc = Result(Address*, size_t);

void* ask(const char* name, int version, uint64_t flags, Result expected = 0) {
  void* function = reinterpret_cast<void*>(1);
  int status = -1;
  CHECK_EQUAL((call<GetProc>("cuGetProcAddress_v2", name, &function, version, flags, &status)), expected);
  if (expected != 0) CHECK(function == nullptr);
  return function;
}

}  // namespace

void scenarioTrampoline() {
  // The first call of all, with arguments in registers of both kinds and on the stack.
  using Launch = Result(long, double, long, double, long, double, long, long, long, long, double, long);
  for (int round = 0; round < 2; ++round) {
    CHECK_EQUAL(find<Launch>("cuLaunchKernel")(1, 1.0, 2, 2.0, 3, 3.0, 4, 5, 6, 7, 4.0, 8), 0);
  }
}

void scenarioResolver() {
  begin();
  Address address = 0;
  CHECK_EQUAL(reinterpret_cast<Alloc*>(ask("cuMemAlloc", 12000, 0))(&address, 50 * MiB), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 50 * MiB);
  CHECK_EQUAL(reinterpret_cast<Result (*)(Address)>(ask("cuMemFree", 13000, 0))(address), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 0);
  // Per-thread default streams are another function, and hooked as well.
  CHECK(ask("cuMemAllocAsync", 12000, 0) != ask("cuMemAllocAsync", 12000, 2));
  using AllocAsync = Result(Address*, size_t, Stream);
  CHECK_EQUAL(reinterpret_cast<AllocAsync*>(ask("cuMemAllocAsync", 12000, 2))(&address, 1 * MiB, Stream{}), 0);
  CHECK_EQUAL(kind(oomtune::kAsync), 32 * MiB);
  // One name, three bindings: each version gets its own, with the arguments that it has there.
  Context context = nullptr;
  void* none = nullptr;
  void* second = ask("cuCtxCreate", 11000, 0);
  void* third = ask("cuCtxCreate", 12000, 0);
  void* fourth = ask("cuCtxCreate", 13000, 0);
  CHECK(second != third && third != fourth);
  CHECK_EQUAL(reinterpret_cast<Result (*)(Context*, unsigned, Device)>(second)(&context, 0u, 0), 0);
  CHECK_EQUAL(reinterpret_cast<Result (*)(Context*, void*, int, unsigned, Device)>(third)(&context, none, 0, 0u, 0), 0);
  CHECK_EQUAL(reinterpret_cast<Result (*)(Context*, void*, unsigned, Device)>(fourth)(&context, none, 0u, 0), 0);
  CHECK_EQUAL(overhead(), 400 * MiB);
  // A version that has no such function gets the driver's own refusal.
  ask("cuMemAllocAsync", 11000, 0, 500);
  ask("cuNoSuchThing", 13000, 0, 500);
  // The resolver resolves itself, each version to its own.
  void* older = ask("cuGetProcAddress", 11030, 0);
  void* newer = ask("cuGetProcAddress", 12000, 0);
  CHECK(older != newer);
  void* function = nullptr;
  using Older = Result(const char*, void**, int, uint64_t);
  CHECK_EQUAL(reinterpret_cast<Older*>(older)("cuMemAlloc", &function, 12000, 0), 0);
  CHECK(function == ask("cuMemAlloc", 12000, 0));
  // So does the form of a program that was compiled for one default stream a thread.
  using PerThread = Result(const char*, void**, int, uint64_t, int*);
  int* unasked = nullptr;
  CHECK_EQUAL((call<PerThread>("cuGetProcAddress_v2_ptsz", "cuMemAllocAsync", &function, 12000, uint64_t{0}, unasked)),
              0);
  CHECK(function == ask("cuMemAllocAsync", 12000, 2));
  CHECK_EQUAL(ledger().blind.load(), 0);
}

void scenarioOldDriver() {
  begin();
  Handle handle = 0;
  AllocationProp prop{};
  using Create = Result(Handle*, size_t, const AllocationProp*, unsigned long long);
  CHECK_EQUAL((call<Create>("cuMemCreate", &handle, size_t{2 * MiB}, &prop, 0ULL)), kNotFound);
  CHECK_EQUAL((call<Result()>("cuGreenCtxGetId")), kNotFound);
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 10 * MiB), 0);
  CHECK_EQUAL(live(), 110 * MiB);
}

void scenarioNewDriver() {
  begin();
  CHECK(dlsym(library(), "cuQuantumEntangle") == nullptr);
  int value = 0;
  CHECK_EQUAL(reinterpret_cast<Result (*)(int*)>(ask("cuQuantumEntangle", 15000, 0))(&value), 0);
  CHECK_EQUAL(value, 42);
  CHECK_EQUAL(ledger().blind.load(), 0);
  Address address = 0;
  CHECK_EQUAL(reinterpret_cast<Alloc*>(ask("cuMemAlloc", 13000, 0))(&address, 10 * MiB), 0);
  CHECK_EQUAL(kind(oomtune::kClassic), 10 * MiB);
  CHECK_EQUAL(ledger().blind.load(), 0);
  // A form of it that this build cannot know: passed through, never answered with another, and said.
  using Newest = Result(Address*, size_t, int);
  CHECK_EQUAL(reinterpret_cast<Newest*>(ask("cuMemAlloc", 15000, 0))(&address, 10 * MiB, 0), 0);
  CHECK_EQUAL(ledger().blind.load(), oomtune::kBlindHook);
}

void scenarioNoDriver() {
  CHECK_EQUAL(start(), kNoDevice);
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 10), kNoDevice);
}

void scenarioNoLedger() {
  Address address = 0;
  begin();
  CHECK_EQUAL(allocate(&address, 900 * MiB), 0);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_live")(0)), 0);
  CHECK_EQUAL(release(address), 0);
}

void scenarioDriverRefuses() {  // the card is smaller than the budget
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 300 * MiB), kOutOfMemory);
  CHECK_EQUAL(ledger().refusals[0].by.load(), oomtune::kByDriver);
  CHECK_EQUAL(committed(), 100 * MiB);
}

void scenarioFaults() {  // the second allocation answers 719, the first free 700
  begin();
  Address first = 0;
  Address second = 0;
  CHECK_EQUAL(allocate(&first, 10 * MiB), 0);
  CHECK_EQUAL(allocate(&second, 10 * MiB), 719);
  CHECK_EQUAL(live(), 110 * MiB);
  CHECK_EQUAL(committed(), 110 * MiB);
  CHECK_EQUAL(refusedCalls(), 0);
  CHECK_EQUAL(release(first), 0);
  CHECK_EQUAL(live(), 100 * MiB);
}

void scenarioFreeFault() {
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 10 * MiB), 0);
  CHECK_EQUAL(release(address), 700);
  CHECK_EQUAL(live(), 110 * MiB);
  CHECK_EQUAL(release(address), 0);
  CHECK_EQUAL(live(), 100 * MiB);
}

void scenarioTwoDevices() {
  CHECK_EQUAL(start(), 0);
  Context first = nullptr;
  Context second = nullptr;
  Address address = 0;
  CHECK_EQUAL(makeContext(&first, 0), 0);
  CHECK_EQUAL(allocate(&address, 10 * MiB), 0);
  CHECK_EQUAL(makeContext(&second, 1), 0);
  CHECK_EQUAL(allocate(&address, 30 * MiB), 0);
  // FAKE_SWAP: this process sees the launch's devices in reverse.
  const int place = getenv("FAKE_SWAP") != nullptr ? 2 : 1;
  CHECK_EQUAL(kind(oomtune::kClassic, place), 10 * MiB);
  CHECK_EQUAL(kind(oomtune::kClassic, 3 - place), 30 * MiB);
  CHECK_EQUAL((find<uint64_t(int)>("oomtune_live")(1)), 130 * MiB);
}

void scenarioNvml() {  // the memory that NVML shows is the budget's too
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, 100 * MiB), 0);
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  CHECK(nvml != nullptr);
  using Init = int();
  using ByIndex = int(unsigned, void**);
  struct Memory {
    unsigned long long total, free, used;
  } memory{};
  struct MemoryV2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } second{};
  void* device = nullptr;
  CHECK_EQUAL(reinterpret_cast<Init*>(dlsym(nvml, "nvmlInit_v2"))(), 0);
  CHECK_EQUAL(reinterpret_cast<ByIndex*>(dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device), 0);
  CHECK_EQUAL(reinterpret_cast<int (*)(void*, Memory*)>(dlsym(nvml, "nvmlDeviceGetMemoryInfo"))(device, &memory), 0);
  CHECK_EQUAL(memory.total, 512 * MiB);
  CHECK_EQUAL(memory.free, 312 * MiB);
  CHECK_EQUAL(memory.used, 200 * MiB);
  CHECK_EQUAL(reinterpret_cast<int (*)(void*, MemoryV2*)>(dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2"))(device, &second),
              0);
  CHECK_EQUAL(second.total, 512 * MiB);
  CHECK_EQUAL(second.free, 312 * MiB);
  CHECK_EQUAL(second.reserved + second.used + second.free, second.total);
  CHECK_EQUAL(reinterpret_cast<Init*>(dlsym(nvml, "nvmlDeviceGetBrand"))(), 13);  // not in this library
}
