// At the limit: what is refused there, what is not, and that a refusal leaves nothing behind.
#include <initializer_list>

#include "fake/state.h"
#include "scenarios.h"

namespace {

using AllocAsync = Result(Address*, size_t, Stream);
using FreeAsync = Result(Address, Stream);
using Capture = Result(Stream, int);
using EndCapture = Result(Stream, Graph*);

/** What NVML would say that this process holds. */
uint64_t shown() {
  fake::Locked card;
  return card.mine().bytes[0];
}

}  // namespace

void scenarioPitchRefused() {  // the driver chose a pitch twice as large as was to be expected
  begin();
  Address address = 0;
  size_t pitch = 0;
  using AllocPitch = Result(Address*, size_t*, size_t, size_t, unsigned);
  CHECK_EQUAL((call<AllocPitch>("cuMemAllocPitch_v2", &address, &pitch, size_t{400}, size_t{450000}, 4u)),
              kOutOfMemory);
  CHECK_EQUAL(committed(), 100 * MiB);
  CHECK_EQUAL(shown(), 100 * MiB);
  CHECK_EQUAL(refusedCalls(), 1);
  CHECK_EQUAL((call<AllocPitch>("cuMemAllocPitch_v2", &address, &pitch, size_t{400}, size_t{400000}, 4u)), 0);
  CHECK_EQUAL(live(), shown());
}

void scenarioHuge() {  // sizes near the end of what a number holds
  begin();
  Address address = 0;
  CHECK_EQUAL(allocate(&address, SIZE_MAX), kOutOfMemory);
  CHECK_EQUAL(ledger().refusals[0].by.load(), oomtune::kByBudget);
  CHECK_EQUAL(ledger().refusals[0].size.load(), SIZE_MAX);
  CHECK_EQUAL(allocate(&address, SIZE_MAX - 3 * MiB), kOutOfMemory);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &address, SIZE_MAX - MiB, Stream{})), kOutOfMemory);
  CHECK_EQUAL(ledger().refusals[2].by.load(), oomtune::kByBudget);
  CHECK_EQUAL(committed(), 100 * MiB);
}

void scenarioIdle() {  // kernels were loaded past the budget: what a pool has idle can still be used
  begin();
  Address address = 0;
  Address rest = 0;
  void* module = nullptr;
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &address, size_t{64 * MiB}, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  CHECK_EQUAL(allocate(&rest, 348 * MiB), 0);
  CHECK_EQUAL(committed(), 512 * MiB);
  CHECK_EQUAL((call<Result(void**, const void*)>("cuModuleLoadData", &module, nullptr)), 0);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &address, size_t{10 * MiB}, Stream{})), 0);
  CHECK_EQUAL(refusedCalls(), 0);
  CHECK_EQUAL(committed(), 576 * MiB);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &rest, size_t{80 * MiB}, Stream{})), kOutOfMemory);
}

void scenarioNoRoom() {  // the card has no room for a context: the driver's own refusal, and told as such
  CHECK_EQUAL(start(), 0);
  Context context = nullptr;
  CHECK_EQUAL(makeContext(&context), kOutOfMemory);
  CHECK_EQUAL((call<Result(Context*, Device)>("cuDevicePrimaryCtxRetain", &context, 0)), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 2);
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(ledger().refusals[i].by.load(), oomtune::kByDriver);
  CHECK_EQUAL(committed(), 0);
}

void scenarioCapture() {  // near the limit the hooks look and trim: no capture may break of it
  begin();
  Address idle = 0;
  Address rest = 0;
  Address address = 0;
  Graph graph = nullptr;
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &idle, size_t{64 * MiB}, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", idle, Stream{})), 0);
  CHECK_EQUAL(allocate(&rest, 320 * MiB), 0);
  for (const char* alloc : {"cuMemAllocAsync", "cuMemAllocAsync_ptsz"}) {
    CHECK_EQUAL((call<Capture>("cuStreamBeginCapture_v2", Stream{}, 0)), 0);
    CHECK_EQUAL((call<AllocAsync>(alloc, &address, size_t{20 * MiB}, Stream{})), 0);
    CHECK_EQUAL((call<AllocAsync>(alloc, &address, size_t{300 * MiB}, Stream{})), kOutOfMemory);
    size_t free = 0;
    size_t total = 0;
    CHECK_EQUAL((call<Result(size_t*, size_t*)>("cuMemGetInfo_v2", &free, &total)), 0);
    CHECK_EQUAL((call<EndCapture>("cuStreamEndCapture", Stream{}, &graph)), 0);
  }
  CHECK_EQUAL(kind(oomtune::kAsync), 0);  // trimmed before the refusal
  CHECK_EQUAL(committed(), live());
}

/**
 * A job of cudaMallocAsync as it was recorded on an H200: 6 GiB of budget, 700 MiB of context and modules, 128 MiB of
 * plain allocations, and a pool that grows by whole steps until a growth that nobody could foresee has to be undone.
 * What the ledger says was held at most is what NVML showed at most, whenever one looked.
 */
void scenarioPoolPeak() {
  begin();
  Address plain = 0;
  Address address = 0;
  CHECK_EQUAL(allocate(&plain, 128 * MiB), 0);
  CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &address, size_t{91 * MiB}, Stream{})), 0);
  CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
  uint64_t most = 0;
  int count = 0;
  Result result = kSuccess;
  while (result == kSuccess && count < 4096) {
    result = call<AllocAsync>("cuMemAllocAsync", &address, size_t{64 * MiB + 4096}, Stream{});
    if (shown() > most) most = shown();
    if (result == kSuccess) {
      CHECK_EQUAL(live(), shown());  // what is reserved, not the 64 MiB that are used
      ++count;
    }
  }
  CHECK_EQUAL(result, kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 1);
  CHECK_EQUAL(ledger().refusals[0].by.load(), oomtune::kByBudget);
  CHECK_EQUAL(peak(), most);
  CHECK(peak() <= 6144 * MiB);
  const uint64_t step = strtoull(getenv("FAKE_POOL_STEP"), nullptr, 10);
  CHECK(peak() + 64 * MiB + step > 6144 * MiB);  // nothing was refused that would have fitted
  CHECK_EQUAL(kind(oomtune::kAsync) % step, 0);
  CHECK_EQUAL(live(), shown());
  CHECK_EQUAL(committed(), live());
}
