#include "evidence.h"

#include <gtest/gtest.h>

#include "bypass.h"

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
  evidence.begin("");
  EXPECT_NE(evidence.verdict(false, 0x7ffffffe), TriState::kYes);
}

TEST(Bypass, isADriverWithoutTheStandIn) {
  const std::string standIn = "/opt/oom tune/cuda/libcuda.so.1";
  const std::string driver = "7f00-7f10 r-xp 00000000 08:01 11 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95\n";
  const std::string other = "7f20-7f30 r-xp 00000000 08:01 12 /usr/lib/libc.so.6\n7f40-7f50 rw-p 00000000 00:00 0\n";
  EXPECT_TRUE(mapsBypass(other + driver, standIn));
  EXPECT_FALSE(mapsBypass(other, standIn));
  EXPECT_FALSE(mapsBypass(driver + "7f60-7f70 r-xp 00000000 08:01 13 " + standIn + "\n" + other, standIn));
  EXPECT_FALSE(mapsBypass(driver + "7f60-7f70 r-xp 00000000 08:01 13 " + standIn + " (deleted)\n", standIn))
      << "replaced";
  EXPECT_FALSE(mapsBypass("", standIn));
}
