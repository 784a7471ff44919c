#include "keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "process_tree.h"

namespace oomtune {

namespace {

constexpr int64_t kGrace = 2000;      // ms between TERM and KILL
constexpr int64_t kSweepEvery = 50;   // ms
constexpr int64_t kSweepsFast = 100;  // then once a second: what does not die at once waits in the kernel

int64_t clockMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

void pauseMs(int64_t ms) {
  const timespec time{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1000000)};
  nanosleep(&time, nullptr);
}

/** Reaps ended children; false: there is no child any more. */
bool reapSome(uint32_t* reaped) {
  for (;;) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return pid == 0;
    ++*reaped;
  }
}

/** Ends all descendants of this process; returns how many there were. */
uint32_t endRest() {
  uint32_t ended = 0;
  if (!reapSome(&ended)) return ended;
  signalTree(SIGTERM);
  const int64_t killAt = clockMs() + kGrace;
  for (int64_t sweeps = 0; reapSome(&ended);) {
    if (clockMs() >= killAt) {
      killTree();
      ++sweeps;
    }
    pauseMs(sweeps < kSweepsFast ? kSweepEvery : 1000);
  }
  return ended;
}

/** Only SIGKILL ends this process from now on, and it holds no stream of its starter open. */
void stepBack() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU}) {
    ::signal(signal, SIG_IGN);
  }
  signal(SIGCHLD, SIG_DFL);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd < 3; ++fd) dup2(null, fd);
  if (null >= 0) close(null);
  if (chdir("/") != 0) return;
}

}  // namespace

int runKeeper(const Folder& folder, const std::string& startedAt, pid_t supervisor) {
  stepBack();
  int status = 0;
  for (;;) {
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid == supervisor) break;
    if (pid < 0 && errno != EINTR) return 1;
  }
  const uint32_t left = endRest();
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  // The record is written before the job runs, and the spec removed after that: so nothing was started.
  const bool early =
      faccessat(folder.file, "spec", F_OK, 0) == 0 && faccessat(folder.file, "supervisor.json", F_OK, 0) != 0;
  if (!early) writeLostRecord(folder, startedAt, left);
  return 0;
}

}  // namespace oomtune
