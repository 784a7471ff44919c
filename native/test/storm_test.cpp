// Many threads at one gate and one table: run under the thread sanitizer.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "budget_gate.h"
#include "ledger_snapshot.h"
#include "pointer_table.h"
#include "scratch.h"
#include "slots.h"

using namespace oomtune;

TEST(Storm, threadsNeverPassTheBudgetTogether) {
  constexpr uint64_t budget = 1 << 20;
  auto ledger = heapLedger(budget);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  std::atomic<bool> passed{false};
  std::atomic<unsigned> tried{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      unsigned seed = t + 1;
      // Eight of a sixth at once: some are refused, also where the threads happen to run one after the other.
      const bool first = gate.reserve(0, budget / 6, "malloc");
      if (first) gate.commit(0, kClassic, budget / 6);
      ++tried;
      while (tried.load() < 8) std::this_thread::yield();
      if (first) gate.release(0, kClassic, budget / 6);
      for (int i = 0; i < 5000; ++i) {
        const uint64_t size = static_cast<uint64_t>(rand_r(&seed)) % (budget / 4) + 1;
        if (!gate.reserve(0, size, "malloc")) continue;
        gate.commit(0, kClassic, size);
        if (ledger->devices[0].committed.load() > budget) passed = true;
        if (i % 100 == 0) gate.resetPeak(0);
        if (i % 10 == 0) std::this_thread::yield();  // so that others find it taken
        gate.release(0, kClassic, size);
      }
    });
  }
  std::thread reader([&] {
    auto snapshot = std::make_unique<LedgerSnapshot>();
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(readLedger(ledger.get(), snapshot.get()));
      if (snapshot->devices[0].live > budget) passed = true;
      reapSlots(ledger.get());
    }
  });
  for (std::thread& thread : threads) thread.join();
  reader.join();
  EXPECT_FALSE(passed);
  EXPECT_EQ(ledger->devices[0].committed.load(), 0u);
  EXPECT_EQ(ledger->devices[0].live.load(), 0u);
  EXPECT_LE(ledger->devices[0].peak.load(), budget);
  EXPECT_GT(ledger->refused.load(), 0u);
}

TEST(Storm, countersAreSetRightWhileOthersAllocate) {
  auto ledger = heapLedger(kNoBudget);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        gate.reserve(0, 64, "malloc");
        gate.commit(0, kClassic, 64);
        gate.release(0, kClassic, 64);
        std::this_thread::yield();
      }
    });
  }
  ledger->devices[0].committed.fetch_add(1000);  // what a death left behind
  for (int i = 0; i < 2000; ++i) {
    ledger->drift.store(1);
    reapSlots(ledger.get());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ledger->drift.store(1);
  reapSlots(ledger.get());
  EXPECT_EQ(ledger->drift.load(), 0u);
  EXPECT_EQ(ledger->devices[0].committed.load(), 0u);
  EXPECT_EQ(ledger->devices[0].live.load(), 0u);
}

TEST(Storm, theTableLosesNoPointer) {
  static PointerTable table;
  std::vector<std::thread> threads;
  std::atomic<uint64_t> wrong{0};
  for (uintptr_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uintptr_t i = 1; i <= 4000; ++i) {
        uint64_t stale = 0;
        if (!table.put(reinterpret_cast<void*>((i * 8 + t) * 64), i, &stale) || stale != 0) ++wrong;
      }
      for (uintptr_t i = 1; i <= 4000; ++i) {
        uint64_t size = 0;
        if (!table.take(reinterpret_cast<void*>((i * 8 + t) * 64), &size) || size != i) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(table.size(), 0u);
}
