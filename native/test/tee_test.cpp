#include "tee.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

using namespace oomtune;

namespace {

std::string readAll(int file) {
  std::string all;
  char part[65536];
  for (ssize_t got = 0; (got = read(file, part, sizeof part)) > 0;) all.append(part, static_cast<size_t>(got));
  return all;
}

void neverBlocks(int reader, int writer) {
  const std::string chunk(Tee::kChunk, 'x');
  auto tee = std::make_unique<Tee>();
  tee->open(dup(writer));
  size_t taken = 0;
  while (tee->ready()) {
    tee->take(chunk.data(), chunk.size());
    taken += chunk.size();
    ASSERT_LT(taken, 64u << 20) << "nobody reads, and it took it all";
  }
  EXPECT_TRUE(tee->pending());
  EXPECT_EQ(fcntl(writer, F_GETFL) & O_NONBLOCK, 0) << "another program's flags were changed";
  fcntl(reader, F_SETFL, O_NONBLOCK);
  size_t got = readAll(reader).size();
  for (int i = 0; i < 100 && tee->pending(); ++i) {
    tee->flush();
    got += readAll(reader).size();
  }
  EXPECT_EQ(got, taken);
}

}  // namespace

TEST(Tee, neverBlocksOnAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  neverBlocks(ends[0], ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST(Tee, neverBlocksOnASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  neverBlocks(ends[0], ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST(Tee, forgetsAReaderThatIsGone) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto tee = std::make_unique<Tee>();
  tee->open(ends[1]);
  close(ends[0]);
  tee->take("x", 1);
  EXPECT_FALSE(tee->isOpen());
  EXPECT_TRUE(tee->ready()) << "the log goes on";
  tee->take("y", 1);
}

TEST(Tee, appendsWhereTheFileStands) {
  char name[] = "/tmp/oomtune-tee-XXXXXX";
  const int file = mkstemp(name);
  ASSERT_EQ(write(file, "before ", 7), 7);
  auto tee = std::make_unique<Tee>();
  tee->open(dup(file));
  tee->take("after", 5);
  lseek(file, 0, SEEK_SET);
  EXPECT_EQ(readAll(file), "before after");
  close(file);
  unlink(name);
}
