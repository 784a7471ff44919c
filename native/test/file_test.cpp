#include "file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "scratch.h"

using namespace oomtune;

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

TEST(File, isCopiedWhateverIsDoneToIt) {
  Scratch scratch;
  const DeviceSetup device{0, 5, "cpu", ""};
  const std::string path = scratch.file("ledger");
  auto copy = std::make_unique<Ledger>();
  EXPECT_FALSE(copyLedger(path.c_str(), copy.get())) << "none";
  ASSERT_EQ(createLedger(path.c_str(), &device, 1), 0);
  EXPECT_TRUE(copyLedger(path.c_str(), copy.get()));
  EXPECT_EQ(copy->devices[0].budget.load(), 5u);
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_FALSE(copyLedger(path.c_str(), copy.get())) << "cut off";
  ASSERT_EQ(truncate(path.c_str(), sizeof(Ledger)), 0);
  EXPECT_FALSE(copyLedger(path.c_str(), copy.get())) << "empty";
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(copyLedger(path.c_str(), copy.get())) << "a pipe";
  EXPECT_FALSE(copyLedger("/dev/zero", copy.get())) << "a device";
}

TEST(File, cutShortUnderAGuardedMappingReadsAsEmpty) {
  Scratch scratch;
  const DeviceSetup device{0, 5, "cpu", ""};
  const std::string path = scratch.file("ledger");
  ASSERT_EQ(createLedger(path.c_str(), &device, 1), 0);
  Ledger* ledger = mapLedger(path.c_str(), true);
  ASSERT_NE(ledger, nullptr);
  guardLedger(ledger);
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(ledger->slots[kSlots - 1].begun.load(), 0u);
  EXPECT_FALSE(ledgerSound(ledger, sizeof(Ledger)));
  ledger->blind.fetch_or(kBlindBypass);  // written to as well
  unmapLedger(ledger);
}

TEST(File, thatHasEndedTakesFewBlocksAndSaysTheSame) {
  Scratch scratch;
  const DeviceSetup device{0, 5, "cpu", ""};
  const std::string path = scratch.file("ledger");
  ASSERT_EQ(createLedger(path.c_str(), &device, 1), 0);
  Ledger* ledger = mapLedger(path.c_str(), true);
  ASSERT_NE(ledger, nullptr);
  ledger->slots[7].devices[0].peak.store(11);
  ledger->refused.store(3);
  unmapLedger(ledger);
  trimLedger(path.c_str());
  struct stat found{};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_size, static_cast<off_t>(sizeof(Ledger)));
  EXPECT_LT(found.st_blocks * 512, 64 << 10);
  auto copy = std::make_unique<Ledger>();
  ASSERT_TRUE(copyLedger(path.c_str(), copy.get()));
  EXPECT_EQ(copy->slots[7].devices[0].peak.load(), 11u);
  EXPECT_EQ(copy->refused.load(), 3u);
  EXPECT_EQ(copy->devices[0].budget.load(), 5u);
}
