#include "slots.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "process.h"
#include "scratch.h"

using namespace oomtune;

namespace {

constexpr uint64_t kBudget = 1000;

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

TEST(Slots, areEmptiedByAnExec) {
  auto ledger = heapLedger(kBudget);
  BudgetGate before = gateOf(ledger.get());
  ASSERT_TRUE(before.reserve(0, 800, "malloc"));
  before.commit(0, kClassic, 800);
  ledger->keys[before.slotIndex()].image.store(12345);  // as if the memory image had been another one
  BudgetGate after = gateOf(ledger.get());
  EXPECT_EQ(after.slotIndex(), before.slotIndex());
  EXPECT_EQ(after.live(0), 0u);
  EXPECT_TRUE(after.reserve(0, 1000, "malloc"));
}

TEST(Slots, ofAForkedChildAreItsOwn) {
  Shared shared(kBudget);
  BudgetGate gate = gateOf(shared.ledger);
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
    BudgetGate gate = gateOf(shared.ledger);
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
  BudgetGate gate = gateOf(ledger.get());
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

TEST(Slots, thatAreBeingTakenAreLeftAlone) {
  auto ledger = heapLedger(kBudget);
  // By a process of another pid namespace, which has not written yet where its pid means something: here it means
  // nobody.
  ledger->keys[3].pid.store(999999);
  ledger->keys[3].pidns.store(currentPidNamespace());  // of whoever had the slot before
  EXPECT_EQ(reapSlots(ledger.get()), 0u);
  EXPECT_EQ(ledger->keys[3].pid.load(), 999999u);
}

TEST(Slots, ofOurOwnAreNeverTakenBack) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
  ledger->keys[gate.slotIndex()].start.store(1);  // as if the start time were told otherwise now
  EXPECT_EQ(reapSlots(ledger.get()), 0u);
  EXPECT_TRUE(gate.reserve(0, 5, "malloc"));
}

TEST(Turns, areTakenByOneAtATimeAndFromTheDead) {
  auto ledger = heapLedger(kBudget);
  Cell& turn = ledger->devices[1].measureLock;
  EXPECT_TRUE(takeTurn(turn));
  EXPECT_FALSE(takeTurn(turn)) << "another thread of the same process";
  endTurn(turn);
  turn.store(uint64_t{999999} << 32 | 5);
  EXPECT_TRUE(takeTurn(turn)) << "its holder died";
  endTurn(turn);
  ProcessStat parent{};
  ASSERT_TRUE(readStat(static_cast<uint64_t>(getppid()), &parent));
  turn.store(static_cast<uint64_t>(getppid()) << 32 | (parent.start & UINT32_MAX));
  EXPECT_FALSE(takeTurn(turn));
}

TEST(Turns, ofAnEarlierImageOfThisProcessEndWithIt) {
  auto ledger = heapLedger(kBudget);
  BudgetGate before = gateOf(ledger.get());
  ASSERT_TRUE(takeTurn(ledger->devices[1].measureLock));
  ledger->keys[before.slotIndex()].image.store(12345);  // as if exec had been called meanwhile
  gateOf(ledger.get());
  EXPECT_TRUE(takeTurn(ledger->devices[1].measureLock));
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
  BudgetGate gate = gateOf(ledger.get());
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
  BudgetGate gate = gateOf(ledger.get());
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
    BudgetGate gate = gateOf(shared.ledger);
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
