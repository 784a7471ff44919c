#include "json.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "record_file.h"
#include "scratch.h"

using namespace oomtune;

TEST(Json, quotesWhateverItIsGiven) {
  EXPECT_EQ(quoted("a \"b\" \\ c"), "\"a \\\"b\\\" \\\\ c\"");
  EXPECT_EQ(quoted(std::string("\n\x01\xff\0z", 5)), "\"????z\"");
}

TEST(Json, tellsTimesInUtc) {
  EXPECT_EQ(isoTime(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(isoTime(1785326399123456789ULL), "2026-07-29T11:59:59.123Z");
}

TEST(Json, namesSignals) {
  EXPECT_EQ(signalName(SIGKILL), "SIGKILL");
  EXPECT_EQ(signalName(SIGBUS), "SIGBUS");
  EXPECT_EQ(signalName(SIGRTMIN + 1), "SIG" + std::to_string(SIGRTMIN + 1));
}

TEST(Json, recordsAreWholeAndPrivate) {
  Scratch scratch;
  const int folder = open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(writeRecord(folder, "exit.json", "{}\n"), 0);
  EXPECT_EQ(writeRecord(folder, "exit.json", "{\"a\":1}\n"), 0);
  EXPECT_EQ(scratch.read("exit.json"), "{\"a\":1}\n");
  EXPECT_EQ(access(scratch.file("exit.json.tmp").c_str(), F_OK), -1);
  struct stat about{};
  ASSERT_EQ(stat(scratch.file("exit.json").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0077, 0u);
  close(folder);
}
