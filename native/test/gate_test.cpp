#include "gate.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "process.h"
#include "scratch.h"
#include "slots.h"

using namespace oomtune;

namespace {

constexpr uint64_t kBudget = 1000;

Gate gateOf(Ledger* ledger) {
  Gate gate;
  gate.attachTo(ledger);
  return gate;
}

/** A ledger that children of this test share. */
struct Shared {
  explicit Shared(uint64_t budget) {
    const DeviceSetup device{0, budget, "cpu", ""};
    EXPECT_EQ(createLedger(scratch.file("ledger").c_str(), &device, 1), 0);
    ledger = mapLedger(scratch.file("ledger").c_str(), true);
  }
  ~Shared() { unmapLedger(ledger); }
  Scratch scratch;
  Ledger* ledger;
};

pid_t inChild(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  body();
  _exit(0);
}

}  // namespace

TEST(Gate, letsThroughExactlyTheBudget) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  EXPECT_TRUE(gate.reserve(0, 999, "malloc"));
  EXPECT_FALSE(gate.reserve(0, 2, "malloc"));
  EXPECT_TRUE(gate.reserve(0, 1, "malloc"));
  EXPECT_FALSE(gate.reserve(0, 1, "malloc"));
  gate.commit(0, kClassic, 999);
  gate.cancel(0, 1);
  EXPECT_EQ(gate.available(0), 1u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 999u);
}

TEST(Gate, doesNotWrapAround) {
  auto ledger = heapLedger(kNoBudget);
  Gate gate = gateOf(ledger.get());
  EXPECT_TRUE(gate.reserve(0, 5, "malloc"));
  EXPECT_FALSE(gate.reserve(0, UINT64_MAX, "malloc"));
  EXPECT_FALSE(gate.reserve(0, UINT64_MAX - 4, "malloc"));
  EXPECT_EQ(ledger->devices[0].committed.load(), 5u);
}

TEST(Gate, keepsDevicesAndKindsApart) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  ASSERT_TRUE(gate.reserve(1, 600, "cuMemAlloc_v2"));
  gate.commit(1, kVmm, 600);
  ASSERT_TRUE(gate.reserve(2, 5000, "cuMemAllocAsync"));
  gate.commit(2, kAsync, 5000);
  EXPECT_EQ(gate.live(0), 0u);
  EXPECT_EQ(gate.live(1), 600u);
  EXPECT_EQ(gate.live(2), 5000u);
  const Slot& slot = ledger->slots[gate.slotIndex()];
  EXPECT_EQ(slot.devices[1].kinds[kVmm].load(), 600u);
  EXPECT_EQ(slot.devices[1].kinds[kClassic].load(), 0u);
  EXPECT_EQ(gate.deviceByUuid("GPU-2"), 2);
  EXPECT_EQ(gate.deviceByUuid("GPU-3"), -1);
  EXPECT_EQ(gate.deviceByUuid(""), -1);
}

TEST(Gate, raisesThePeakOnlyForWhatWasReallyAllocated) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  ASSERT_TRUE(gate.reserve(0, 900, "malloc"));
  gate.cancel(0, 900);
  EXPECT_EQ(ledger->devices[0].peak.load(), 0u);
  ASSERT_TRUE(gate.reserve(0, 300, "malloc"));
  gate.commit(0, kClassic, 300);
  gate.release(0, kClassic, 300);
  EXPECT_EQ(gate.peak(0), 300u);
  gate.resetPeak(0);
  EXPECT_EQ(gate.peak(0), 0u);
  EXPECT_EQ(ledger->devices[0].peak.load(), 300u);
}

TEST(Gate, countsOverheadAndLetsItPassTheBudget) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  gate.setOverhead(1, 700);
  EXPECT_FALSE(gate.reserve(1, 301, "cuMemAlloc_v2"));
  EXPECT_TRUE(gate.reserve(1, 300, "cuMemAlloc_v2"));
  gate.commit(1, kClassic, 300);
  gate.setOverhead(1, 900);
  EXPECT_EQ(gate.live(1), 1200u);
  EXPECT_EQ(gate.available(1), 0u);
  EXPECT_FALSE(gate.reserve(1, 1, "cuMemAlloc_v2"));
  gate.setOverhead(1, 100);
  EXPECT_EQ(gate.live(1), 400u);
  EXPECT_EQ(gate.available(1), 600u);
  EXPECT_EQ(ledger->devices[1].peak.load(), 1200u);
}

TEST(Gate, recordsWhoRefused) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  EXPECT_FALSE(gate.reserve(0, 5000, "a_name_that_is_longer_than_the_ledger_has_room_for"));
  EXPECT_FALSE(gate.reserve(0, 5000, "quiet", false));
  gate.refuse(1, 7, "cuMemCreate", kByDriver);
  EXPECT_EQ(gate.refused(), 2u);
  const RefusalEntry& first = ledger->refusals[0];
  EXPECT_EQ(first.size.load(), 5000u);
  EXPECT_EQ(first.budget.load(), kBudget);
  EXPECT_EQ(first.by.load(), kByBudget);
  EXPECT_EQ(first.pid.load(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(ledger->refusals[1].by.load(), kByDriver);
  EXPECT_EQ(ledger->devices[1].refused.load(), 1u);
}

TEST(Gate, withoutALedgerIsOpen) {
  Gate gate;
  EXPECT_TRUE(gate.reserve(0, UINT64_MAX, "malloc"));
  gate.commit(0, kClassic, 5);
  gate.release(0, kClassic, 5);
  EXPECT_EQ(gate.live(0), 0u);
  EXPECT_EQ(gate.budget(0), kNoBudget);
  EXPECT_TRUE(gateOf(heapLedger(1).get()).reserve(kDevices, 9, "malloc")) << "a device that there is not";
}

TEST(Gate, ofTheSameImageShareTheirSlot) {
  auto ledger = heapLedger(kBudget);
  EXPECT_EQ(gateOf(ledger.get()).slotIndex(), gateOf(ledger.get()).slotIndex());
  EXPECT_EQ(ledger->claims.load(), 1u);
}

TEST(Slots, areEmptiedByAnExec) {
  auto ledger = heapLedger(kBudget);
  Gate before = gateOf(ledger.get());
  ASSERT_TRUE(before.reserve(0, 800, "malloc"));
  before.commit(0, kClassic, 800);
  ledger->keys[before.slotIndex()].image.store(12345);  // as if the memory image had been another one
  Gate after = gateOf(ledger.get());
  EXPECT_EQ(after.slotIndex(), before.slotIndex());
  EXPECT_EQ(after.live(0), 0u);
  EXPECT_TRUE(after.reserve(0, 1000, "malloc"));
}

TEST(Slots, ofAForkedChildAreItsOwn) {
  Shared shared(kBudget);
  Gate gate = gateOf(shared.ledger);
  ASSERT_TRUE(gate.reserve(0, 400, "malloc"));
  gate.commit(0, kClassic, 400);
  const pid_t child = inChild([&] {
    gate.forked();
    const bool fresh = gate.live(0) == 0 && gate.reserve(0, 600, "malloc") && !gate.reserve(0, 1, "malloc");
    gate.commit(0, kClassic, 600);
    _exit(fresh ? 0 : 1);
  });
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(gate.live(0), 400u);
  EXPECT_EQ(shared.ledger->devices[0].live.load(), 1000u);
  EXPECT_TRUE(gate.reserve(0, 600, "malloc")) << "the dead child's bytes are taken back before a refusal";
  EXPECT_EQ(shared.ledger->devices[0].peak.load(), 1000u);
}

TEST(Slots, ofAZombieAreTakenBack) {
  Shared shared(kBudget);
  const pid_t child = inChild([&] {
    Gate gate = gateOf(shared.ledger);
    gate.reserve(0, 1000, "malloc");
    gate.commit(0, kClassic, 1000);
  });
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(reapSlots(shared.ledger), 1u);
  EXPECT_EQ(shared.ledger->devices[0].committed.load(), 0u);
  waitpid(child, nullptr, 0);
}

TEST(Slots, whenAllAreTakenAreSharedAndTheLedgerSaysSo) {
  auto ledger = heapLedger(kNoBudget);
  ProcessStat self{};
  ASSERT_TRUE(readStat(getppid(), &self));
  for (uint32_t i = 0; i < kOverflowSlot; ++i) {  // all held by a process that lives
    ledger->keys[i].pid.store(static_cast<uint64_t>(getppid()));
    ledger->keys[i].start.store(self.start);
    ledger->keys[i].pidns.store(currentPidNamespace());
  }
  Gate gate = gateOf(ledger.get());
  EXPECT_EQ(gate.slotIndex(), kOverflowSlot);
  EXPECT_EQ(ledger->blind.load(), static_cast<uint32_t>(kBlindSlots));
  EXPECT_TRUE(gate.reserve(0, 5, "malloc"));
  gate.commit(0, kClassic, 5);
  EXPECT_EQ(gate.live(0), 5u);
}

TEST(Slots, ofAnotherPidNamespaceAreLeftAlone) {
  auto ledger = heapLedger(kBudget);
  ledger->keys[3].pid.store(999999);
  ledger->keys[3].start.store(5);
  ledger->keys[3].pidns.store(currentPidNamespace() + 1);
  EXPECT_EQ(reapSlots(ledger.get()), 0u);
  ledger->keys[3].pidns.store(currentPidNamespace());
  EXPECT_EQ(reapSlots(ledger.get()), 1u);
}

TEST(Slots, ofAnEarlierProcessWithOurPidAreTakenBack) {
  auto ledger = heapLedger(kBudget);
  ledger->keys[3].pid.store(static_cast<uint64_t>(getpid()));
  ledger->keys[3].start.store(1);
  ledger->keys[3].pidns.store(currentPidNamespace());
  ledger->slots[3].devices[0].committed.store(5);
  ledger->devices[0].committed.store(5);
  EXPECT_EQ(reapSlots(ledger.get()), 1u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 0u);
  ledger->reaper.store(static_cast<uint64_t>(getpid()) << 32 | 1);  // its lock, too
  reapSlots(ledger.get());
  EXPECT_EQ(ledger->reaper.load(), 0u);
}

TEST(Slots, countersThatADeathLeftHalfDoneAreSetRight) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  ASSERT_TRUE(gate.reserve(0, 100, "malloc"));
  gate.commit(0, kClassic, 100);
  // A process that died after the device's counter was raised and before its slot's.
  ledger->keys[7].pid.store(999999);
  ledger->keys[7].start.store(5);
  ledger->keys[7].pidns.store(currentPidNamespace());
  ledger->slots[7].begun.store(1);
  ledger->devices[0].committed.fetch_add(850);
  ledger->devices[0].live.fetch_add(850);
  EXPECT_EQ(reapSlots(ledger.get()), 1u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 100u);
  EXPECT_EQ(ledger->devices[0].live.load(), 100u);
  EXPECT_EQ(ledger->drift.load(), 0u);
}

TEST(Slots, aPeakIsNotRaisedByBytesThatADeathLeftBehind) {
  auto ledger = heapLedger(kBudget);
  Gate gate = gateOf(ledger.get());
  ledger->devices[0].live.fetch_add(900);  // not yet set right
  ASSERT_TRUE(gate.reserve(0, 800, "malloc"));
  gate.commit(0, kClassic, 800);
  EXPECT_EQ(ledger->devices[0].peak.load(), kBudget);
}

TEST(Slots, theWorkOfAReaperThatDiedIsFinished) {
  auto ledger = heapLedger(kBudget);
  ledger->reaper.store(uint64_t{999999} << 32 | 5);
  ledger->devices[0].committed.store(77);  // as it left them
  reapSlots(ledger.get());
  EXPECT_EQ(ledger->reaper.load(), 0u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 0u);
}

TEST(Slots, holdTheBudgetWhileProcessesAreKilledAtRandom) {
  constexpr uint64_t budget = 1 << 20;
  Shared shared(budget);
  DeviceEntry& device = shared.ledger->devices[0];
  std::vector<pid_t> children;
  auto worker = [&](unsigned seed) {
    Gate gate = gateOf(shared.ledger);
    std::vector<uint64_t> held;
    for (;;) {
      const uint64_t size = static_cast<uint64_t>(rand_r(&seed)) % (budget / 8) + 1;
      if (rand_r(&seed) % 2 == 0 && !held.empty()) {
        gate.release(0, kClassic, held.back());
        held.pop_back();
      } else if (gate.reserve(0, size, "malloc")) {
        gate.commit(0, kClassic, size);
        held.push_back(size);
      }
      if (device.committed.load() > budget || device.peak.load() > budget) _exit(9);
    }
  };
  unsigned seed = 1;
  for (unsigned round = 0; round < 60; ++round) {
    while (children.size() < 4) {
      children.push_back(inChild([&] { worker(++seed + round * 100); }));
      ++seed;
    }
    usleep(static_cast<useconds_t>(rand_r(&seed) % 5000));
    kill(children.front(), SIGKILL);
    int status = 0;
    waitpid(children.front(), &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "a child saw the budget passed";
    children.erase(children.begin());
  }
  for (pid_t child : children) kill(child, SIGKILL);
  for (pid_t child : children) waitpid(child, nullptr, 0);
  reapSlots(shared.ledger);
  EXPECT_EQ(device.committed.load(), 0u);
  EXPECT_EQ(device.live.load(), 0u);
  EXPECT_GT(device.peak.load(), budget / 2);
}

TEST(File, isMadeOnceAndPrivate) {
  Scratch scratch;
  const DeviceSetup device{0, 5, "cpu", ""};
  EXPECT_EQ(createLedger(scratch.file("ledger").c_str(), &device, 1), 0);
  EXPECT_EQ(createLedger(scratch.file("ledger").c_str(), &device, 1), EEXIST);
  EXPECT_EQ(createLedger("/no/such/folder/ledger", &device, 1), ENOENT);
}

TEST(File, ofAnotherShapeIsNoLedger) {
  Scratch scratch;
  const DeviceSetup device{0, 5, "cpu", ""};
  const std::string path = scratch.file("ledger");
  EXPECT_EQ(mapLedger(path.c_str(), false), nullptr) << "none";
  ASSERT_EQ(createLedger(path.c_str(), &device, 1), 0);
  Ledger* ledger = mapLedger(path.c_str(), true);
  ASSERT_NE(ledger, nullptr);
  ledger->version.store(kLedgerVersion + 1);
  EXPECT_EQ(mapLedger(path.c_str(), false), nullptr) << "of another version";
  ledger->version.store(kLedgerVersion);
  ledger->slotCount.store(1u << 30);
  EXPECT_EQ(mapLedger(path.c_str(), false), nullptr) << "of another size, it claims";
  unmapLedger(ledger);
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EQ(mapLedger(path.c_str(), false), nullptr) << "cut off";
  ASSERT_EQ(symlink(path.c_str(), scratch.file("link").c_str()), 0);
  EXPECT_EQ(mapLedger(scratch.file("link").c_str(), false), nullptr) << "a link";
  EXPECT_EQ(mapLedger("/dev/null", false), nullptr) << "a device";
}
