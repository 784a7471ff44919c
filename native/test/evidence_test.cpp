#include "evidence.h"

#include <gtest/gtest.h>

using namespace oomtune;

TEST(Evidence, findsTheCounterInBothFormats) {
  EXPECT_EQ(oomKillLine("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"), 2);
  EXPECT_EQ(oomKillLine("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"), 4);
  EXPECT_EQ(oomKillLine("oom_kill_disable 0\nunder_oom 0\n"), -1);
  EXPECT_EQ(oomKillLine("oom_kill x"), -1);
  EXPECT_EQ(oomKillLine(""), -1);
}

TEST(Evidence, findsTheVictimInTheKernelsLog) {
  const std::string line = "3,902,5140,-;Memory cgroup out of memory: Killed process 1234 (python3) total-vm:9kB";
  EXPECT_TRUE(kernelNames(line, 1234));
  EXPECT_FALSE(kernelNames(line, 123));
  EXPECT_FALSE(kernelNames("6,1,2,-;usb 1-1: new device", 1));
}

TEST(Evidence, saysNoWhereNothingWasKilled) {
  OomEvidence evidence;
  evidence.begin();
  EXPECT_NE(evidence.verdict(false, 0x7ffffffe), Told::kYes);
}
