#include "file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

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
