#include "ledger_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "budget_gate.h"
#include "scratch.h"

using namespace oomtune;

TEST(LedgerSnapshot, tellsWhatTheGateCounted) {
  auto ledger = heapLedger(1000);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  ASSERT_TRUE(gate.reserve(1, 600, "cuMemAlloc_v2"));
  gate.commit(1, kManaged, 600);
  gate.setOverhead(1, 100);
  EXPECT_FALSE(gate.reserve(1, 500, "cuMemAlloc_v2"));
  auto snapshot = std::make_unique<LedgerSnapshot>();
  ASSERT_TRUE(readLedger(ledger.get(), snapshot.get()));
  ASSERT_EQ(snapshot->deviceCount, 3u);
  EXPECT_STREQ(snapshot->devices[1].name, "cuda:3");
  EXPECT_EQ(snapshot->devices[1].live, 700u);
  EXPECT_EQ(snapshot->devices[1].overhead, 100u);
  EXPECT_EQ(snapshot->devices[1].kinds[kManaged], 600u);
  EXPECT_EQ(snapshot->devices[1].budget, 1000u);
  EXPECT_EQ(snapshot->devices[2].budget, kNoBudget);
  ASSERT_EQ(snapshot->refusalCount, 1u);
  EXPECT_STREQ(snapshot->refusals[0].api, "cuMemAlloc_v2");
  EXPECT_EQ(snapshot->refusals[0].live, 700u);
  EXPECT_EQ(snapshot->processes, 1u);
  EXPECT_EQ(snapshot->claims, 1u);
}

TEST(LedgerSnapshot, holdsTheLatestRefusalsOldestFirst) {
  auto ledger = heapLedger(1);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  for (uint64_t i = 0; i < kRefusals + 44; ++i) gate.refuse(0, i + 1, "malloc", kByBudget);
  auto snapshot = std::make_unique<LedgerSnapshot>();
  ASSERT_TRUE(readLedger(ledger.get(), snapshot.get()));
  EXPECT_EQ(snapshot->refused, kRefusals + 44u);
  ASSERT_EQ(snapshot->refusalCount, kRefusals);
  EXPECT_EQ(snapshot->refusals[0].size, 45u);
  EXPECT_EQ(snapshot->refusals[kRefusals - 1].size, kRefusals + 44u);
}

TEST(LedgerSnapshot, leavesOutARefusalThatIsBeingWritten) {
  auto ledger = heapLedger(1);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  gate.refuse(0, 5, "malloc", kByBudget);
  gate.refuse(0, 6, "malloc", kByBudget);
  ledger->refusals[0].sequence.store(1);
  auto snapshot = std::make_unique<LedgerSnapshot>();
  ASSERT_TRUE(readLedger(ledger.get(), snapshot.get()));
  EXPECT_EQ(snapshot->refused, 2u);
  ASSERT_EQ(snapshot->refusalCount, 1u);
  EXPECT_EQ(snapshot->refusals[0].size, 6u);
}

TEST(LedgerSnapshot, addsUpToNothingThatJavaScriptCannotHold) {
  auto ledger = heapLedger(1000);
  for (uint32_t i = 0; i < 3; ++i) {
    ledger->keys[i].pid.store(1);
    ledger->slots[i].devices[1].overhead.store((1ULL << 53) - 1);
    ledger->slots[i].devices[1].kinds[kVmm].store((1ULL << 53) - 1);
  }
  auto snapshot = std::make_unique<LedgerSnapshot>();
  ASSERT_TRUE(readLedger(ledger.get(), snapshot.get()));
  EXPECT_LT(snapshot->devices[1].overhead, 1ULL << 53);
  EXPECT_LT(snapshot->devices[1].kinds[kVmm], 1ULL << 53);
}

TEST(LedgerSnapshot, believesNothingThatAJobMayHaveWritten) {
  std::mt19937_64 random(7);
  auto snapshot = std::make_unique<LedgerSnapshot>();
  for (int round = 0; round < 200; ++round) {
    auto ledger = heapLedger(1000);
    auto* words = reinterpret_cast<uint64_t*>(ledger.get());
    const size_t count = sizeof(Ledger) / 8;
    // All of it in some rounds, a few words in others; the head is kept so that it is read at all.
    const size_t writes = round % 2 == 0 ? count : 50;
    for (size_t i = 0; i < writes; ++i) {
      const size_t at = round % 2 == 0 ? i : random() % count;
      if (at >= 5) words[at] = random() >> (random() % 64);
    }
    for (uint32_t d = 0; d < kDevices; d += 2) ledger->devices[d].present.store(1);
    ledger->bytes.store(sizeof(Ledger));
    if (!readLedger(ledger.get(), snapshot.get())) continue;
    ASSERT_LE(snapshot->deviceCount, kDevices);
    ASSERT_LE(snapshot->refusalCount, kRefusals);
    for (uint32_t i = 0; i < snapshot->deviceCount; ++i) {
      ASSERT_LT(std::strlen(snapshot->devices[i].name), sizeof snapshot->devices[i].name);
      ASSERT_LT(snapshot->devices[i].live, 1ULL << 53);
    }
    for (uint32_t i = 0; i < snapshot->refusalCount; ++i) {
      ASSERT_LT(snapshot->refusals[i].device, kDevices);
      for (const char* c = snapshot->refusals[i].api; *c != '\0'; ++c) ASSERT_TRUE(*c > ' ' && *c < 127);
    }
  }
}
