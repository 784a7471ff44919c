#include "budget_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "scratch.h"

using namespace oomtune;

namespace {

constexpr uint64_t kBudget = 1000;

}  // namespace

TEST(BudgetGate, letsThroughExactlyTheBudget) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
  EXPECT_TRUE(gate.reserve(0, 999, "malloc"));
  EXPECT_FALSE(gate.reserve(0, 2, "malloc"));
  EXPECT_TRUE(gate.reserve(0, 1, "malloc"));
  EXPECT_FALSE(gate.reserve(0, 1, "malloc"));
  gate.commit(0, kClassic, 999);
  gate.cancel(0, 1);
  EXPECT_EQ(gate.available(0), 1u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 999u);
}

TEST(BudgetGate, doesNotWrapAround) {
  auto ledger = heapLedger(kNoBudget);
  BudgetGate gate = gateOf(ledger.get());
  EXPECT_TRUE(gate.reserve(0, 5, "malloc"));
  EXPECT_FALSE(gate.reserve(0, UINT64_MAX, "malloc"));
  EXPECT_FALSE(gate.reserve(0, UINT64_MAX - 4, "malloc"));
  EXPECT_EQ(ledger->devices[0].committed.load(), 5u);
}

TEST(BudgetGate, keepsDevicesAndKindsApart) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
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

TEST(BudgetGate, raisesThePeakOnlyForWhatWasReallyAllocated) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
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

TEST(BudgetGate, countsOverheadAndLetsItPassTheBudget) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
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

TEST(BudgetGate, recordsWhoRefused) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
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

TEST(BudgetGate, withoutALedgerIsOpen) {
  BudgetGate gate;
  EXPECT_TRUE(gate.reserve(0, UINT64_MAX, "malloc"));
  gate.commit(0, kClassic, 5);
  gate.release(0, kClassic, 5);
  EXPECT_EQ(gate.live(0), 0u);
  EXPECT_EQ(gate.budget(0), kNoBudget);
  EXPECT_TRUE(gateOf(heapLedger(1).get()).reserve(kDevices, 9, "malloc")) << "a device that there is not";
}

TEST(BudgetGate, ofTheSameImageShareTheirSlot) {
  auto ledger = heapLedger(kBudget);
  EXPECT_EQ(gateOf(ledger.get()).slotIndex(), gateOf(ledger.get()).slotIndex());
  EXPECT_EQ(ledger->claims.load(), 1u);
}

TEST(BudgetGate, keepsChargingWhatItHandsOver) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
  ASSERT_TRUE(gate.reserve(1, 600, "cuMemAllocAsync"));
  gate.commit(1, kAsync, 600);
  gate.setOverhead(1, 50);
  gate.handOver(1, kAsync, 400);
  const SlotDevice& own = ledger->slots[gate.slotIndex()].devices[1];
  EXPECT_EQ(own.kinds[kAsync].load(), 200u);
  EXPECT_EQ(gate.overhead(1), 450u);
  EXPECT_EQ(gate.live(1), 650u);
  EXPECT_EQ(gate.available(1), kBudget - 650);
  gate.setOverhead(1, 50);  // measured: it is gone
  EXPECT_EQ(gate.live(1), 250u);
}

TEST(BudgetGate, remembersTheWeakestFiguresThatWereUsed) {
  auto ledger = heapLedger(kBudget);
  BudgetGate gate = gateOf(ledger.get());
  EXPECT_EQ(ledger->devices[1].measured.load(), kMeasuredNot);
  gate.setMeasured(1, kMeasuredByProcess);
  gate.setMeasured(1, kMeasuredByDevice);
  gate.setMeasured(1, kMeasuredByProcess);
  EXPECT_EQ(ledger->devices[1].measured.load(), kMeasuredByDevice);
}
