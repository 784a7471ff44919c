#include "process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

using namespace oomtune;

namespace {

bool parses(const char* text, ProcessStat* stat) { return parseStat(text, std::strlen(text), stat); }

const char kTail[] = " 0 -1 4194304 102 0 0 0 0 0 0 0 20 0 3 0 183164 2998272 415 18446744073709551615";

}  // namespace

TEST(Process, isReadWhateverItsNameIs) {
  for (const char* name : {"python3", "a b", ") R 1 1 1", "((()", ""}) {
    ProcessStat stat{};
    ASSERT_TRUE(parses((std::string("77 (") + name + ") S 12 13 14" + kTail + "\n").c_str(), &stat)) << name;
    EXPECT_EQ(stat.state, 'S');
    EXPECT_EQ(stat.parent, 12u);
    EXPECT_EQ(stat.group, 13u);
    EXPECT_EQ(stat.session, 14u);
    EXPECT_EQ(stat.threads, 3u);
    EXPECT_EQ(stat.start, 183164u);
  }
}

TEST(Process, isNotMadeUpFromOtherText) {
  ProcessStat stat{};
  for (const char* text : {"", ")", "77 (x)", "77 (x) S", "77 (x) S 1 2 3", "77 x S 1 2 3 4 5"}) {
    EXPECT_FALSE(parses(text, &stat)) << text;
  }
}

TEST(Process, isToldFromAnotherWithItsPid) {
  ProcessStat self{};
  ASSERT_TRUE(readStat(currentPid(), &self));
  EXPECT_TRUE(processExists(currentPid(), self.start));
  EXPECT_FALSE(processExists(currentPid(), self.start + 1));
  EXPECT_FALSE(processExists(0x7ffffffe, 0));
}

TEST(Process, thatIsAZombieDoesNotLive) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(processExists(static_cast<uint64_t>(child), 0));
  waitpid(child, nullptr, 0);
}

TEST(Process, livesUntilItIsKnownToBeGone) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const bool lives = processExists(currentPid(), 0);
  const bool gone = !processExists(0x7ffffffe, 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(lives) << "no descriptor was left to look with";
  EXPECT_FALSE(gone) << "nor can a death be told then";
}

TEST(Process, hasOneImage) { EXPECT_EQ(currentImage(), currentImage()); }
