#include "log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "scratch.h"

using namespace oomtune;

namespace {

struct Folder : Scratch {
  int descriptor = open(path().c_str(), O_RDONLY | O_DIRECTORY);
  ~Folder() { close(descriptor); }
};

}  // namespace

TEST(Log, turnsOverAtItsLimitAndLosesNothingBetween) {
  Folder folder;
  Log log(folder.descriptor, 10);
  ASSERT_EQ(log.open(), 0);
  log.write("0123456", 7);
  log.write("789abcdef", 9);
  EXPECT_EQ(folder.read("log.1"), "0123456789");
  EXPECT_EQ(folder.read("log"), "abcdef");
  log.write("ghijKLMNOPQRSTuvw", 17);
  EXPECT_EQ(folder.read("log.1"), "KLMNOPQRST");
  EXPECT_EQ(folder.read("log"), "uvw");
  struct stat about{};
  ASSERT_EQ(stat(folder.file("log").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST(Log, goesOnAfterAFullDiskAndSaysWhatIsMissing) {
  Folder folder;
  signal(SIGXFSZ, SIG_IGN);
  Log log(folder.descriptor, 1 << 20);
  ASSERT_EQ(log.open(), 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  log.write("abcd", 4);
  log.write("efg", 3);
  log.write("hij", 3);
  setrlimit(RLIMIT_FSIZE, &before);
  log.write("klm", 3);
  EXPECT_EQ(log.lost(), 6u);
  EXPECT_EQ(folder.read("log"), "abcd\n[oomtune: 6 bytes of output were lost: the disk was full]\nklm");
}

TEST(Log, thatIsTakenAwayIsMadeAnewAndStaysBounded) {
  Folder folder;
  Log log(folder.descriptor, 10);
  ASSERT_EQ(log.open(), 0);
  log.write("01234", 5);
  ASSERT_EQ(unlink(folder.file("log").c_str()), 0);
  log.write("56789", 5);
  log.write("abc", 3);  // the limit: the file without a name is given up
  EXPECT_EQ(folder.read("log"), "abc");
  ASSERT_EQ(unlink(folder.file("log").c_str()), 0);
  ASSERT_EQ(mkfifo(folder.file("log").c_str(), 0600), 0);
  log.write("defghij", 7);
  log.write("klm", 3);
  EXPECT_EQ(folder.read("log"), "klm");
  sleep(1);
  ASSERT_EQ(rename(folder.file("log").c_str(), folder.file("kept").c_str()), 0);
  log.write("no", 2);  // looked at once a second
  EXPECT_EQ(folder.read("log"), "no");
  EXPECT_EQ(folder.read("kept"), "klm");
}

TEST(Log, whoseNameIsTakenByAFolderStaysBounded) {
  Folder folder;
  Log log(folder.descriptor, 10);
  ASSERT_EQ(log.open(), 0);
  log.write("0123456789", 10);
  ASSERT_EQ(rename(folder.file("log").c_str(), folder.file("held").c_str()), 0);
  ASSERT_EQ(mkdir(folder.file("log").c_str(), 0700), 0);
  for (int n = 0; n < 100; ++n) log.write("0123456789", 10);
  EXPECT_LE(folder.read("held").size(), 10u);
}

TEST(Log, isNotLedAstrayByALink) {
  Folder folder;
  ASSERT_EQ(symlink("/etc/passwd", folder.file("log").c_str()), 0);
  EXPECT_EQ(Log(folder.descriptor, 10).open(), ELOOP);
}
