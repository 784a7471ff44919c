#include "event_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bypass.h"
#include "cgroup.h"
#include "process.h"
#include "process_tree.h"
#include "slots.h"

namespace oomtune {

namespace {

constexpr uint64_t kReapEvery = 1000;     // ms; dead processes' bytes in the ledger
constexpr uint64_t kLookEvery = 5000;     // ms; whether a process bypasses the stand-in
constexpr uint64_t kOwnerEvery = 1000;    // ms; whether the owner of the run still exists
constexpr uint64_t kSweepEvery = 50;      // ms between sweeps of SIGKILL
constexpr uint64_t kDrainTimeout = 5000;  // ms; for a reader that does not read our output, after the run was ended

uint64_t clockMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

}  // namespace

void EventLoop::read(int out, int err, bool inherit) {
  sources_[0].file = out;
  sources_[1].file = err;
  if (inherit) {
    sources_[0].tee.open(dup(1));
    sources_[1].tee.open(dup(2));
  }
}

void EventLoop::pump(Source& source) {
  char chunk[Tee::kChunk];
  const ssize_t got = ::read(source.file, chunk, sizeof chunk);
  if (got > 0 && searching_) {
    searchLog_.write(chunk, static_cast<size_t>(got));
  } else if (got > 0) {
    log_.write(chunk, static_cast<size_t>(got));
    source.tee.take(chunk, static_cast<size_t>(got));
  } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    close(source.file);
    source.file = -1;
  }
}

bool EventLoop::reap() {
  bool reaped = false;
  // Zombies that their parents did not reap come to us when the job dies: they are no stragglers.
  const bool after = jobEnded_;
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == 0) break;
    if (pid < 0) {
      childless_ = errno == ECHILD;
      break;
    }
    reaped = true;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !killing_ && pid != spare_;
    outcome_.killed = outcome_.killed || killed;
    others_.erase(std::remove(others_.begin(), others_.end(), pid), others_.end());
    if (pid == job_) {
      jobEnded_ = true;
      outcome_.status = status;
      linger_ = clockMs() + spec_.lingerMs;
    } else if (pid == spare_) {
      spare_ = -1;
      if (searching_) linger_ = clockMs();
    } else if (after) {
      ++outcome_.stragglers;
    }
  }
  if (jobEnded_ && !after && !childless_) mainEnded();
  return reaped;
}

/** The job's main process has ended, and left others. A spare is of use only to a job that failed. */
void EventLoop::mainEnded() {
  others_ = descendants();
  spare_ = spareOf(others_);
  if (spare_ > 0 && (ending_ || outcome_.status == 0)) {
    kill(spare_, SIGKILL);
  } else if (spare_ > 0) {
    others_.erase(std::remove(others_.begin(), others_.end(), spare_), others_.end());
    // What the job itself has printed comes first.
    for (Source& source : sources_) {
      pollfd rest{source.file, POLLIN, 0};
      while (source.file >= 0 && source.tee.ready() && poll(&rest, 1, 0) > 0) pump(source);
    }
    searching_ = searchLog_.open() == 0;
  }
  if (onMainEnd) onMainEnd(outcome_);
}

/** Beside a spare: ends only what the job had left. */
void EventLoop::endOthers() {
  const bool asked = killAt_ != 0;
  for (pid_t pid : others_) kill(pid, asked ? SIGKILL : SIGTERM);
  killAt_ = asked ? killAt_ : clockMs() + spec_.graceMs;
  linger_ = clockMs() + (asked || others_.empty() ? kReapEvery : spec_.graceMs);
}

void EventLoop::startEnding(const char* endedBy) {
  if (!jobEnded_ && !ending_) outcome_.endedBy = endedBy;
  if (ending_) return;
  ending_ = true;
  signalTree(SIGTERM);
  killAt_ = clockMs() + spec_.graceMs;
}

void EventLoop::escalate(Cgroup& cgroup) {
  const uint64_t now = clockMs();
  if (!ending_ && !jobEnded_ && deadline_ != 0 && now >= deadline_) startEnding("timeout");
  if (!ending_ && jobEnded_ && now >= linger_) {
    if (searching_ && spare_ > 0) endOthers();
    else startEnding("job");
  }
  if (ending_ && now >= killAt_) {
    killing_ = true;
    cgroup.kill();
    killTree();
    // What does not die at once waits in the kernel, perhaps for a GPU: look less often.
    killAt_ = now + kSweepEvery * std::min<uint64_t>(++sweeps_, 20);
  }
}

void EventLoop::watchLedger(bool reaped) {
  const uint64_t now = clockMs();
  if (reaped || now >= nextReap_) {
    reapSlots(ledger_);
    nextReap_ = now + kReapEvery;
  }
  if (!spec_.standIn.empty() && now >= nextLook_) {
    if (treeBypasses(spec_.standIn)) ledger_->blind.fetch_or(kBlindBypass);
    nextLook_ = now + kLookEvery;
  }
}

void EventLoop::watchOwner() {
  if (spec_.ownerPid == 0 || ending_ || clockMs() < nextOwnerLook_) return;
  nextOwnerLook_ = clockMs() + kOwnerEvery;
  if (!processExists(spec_.ownerPid, spec_.ownerStart)) startEnding("cancel");
}

void EventLoop::serve(int signals) {
  signalfd_siginfo info{};
  while (::read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) startEnding("cancel");
    if (info.ssi_signo == SIGUSR1) startEnding("timeout");
  }
}

/** Milliseconds until something is due. */
int EventLoop::nextTimeout() const {
  const uint64_t now = clockMs();
  uint64_t next = ledger_ != nullptr ? nextReap_ : UINT64_MAX;
  if (spec_.ownerPid != 0 && !ending_) next = std::min(next, nextOwnerLook_);
  if (!ending_ && !jobEnded_ && deadline_ != 0) next = std::min(next, deadline_);
  if (!ending_ && jobEnded_) next = std::min(next, linger_);
  if (ending_) next = std::min(next, killAt_);
  if (next == UINT64_MAX) return -1;
  return next <= now ? 0 : static_cast<int>(std::min<uint64_t>(next - now, 60000));
}

/**
 * Reads what is left in the pipes when no process of the tree is left. A reader of our own output may take its time,
 * unless the run was ended.
 */
void EventLoop::drain(int signals) {
  uint64_t until = 0;
  for (Source& source : sources_) {
    while (source.file >= 0 || source.tee.pending()) {
      if (source.tee.pending()) {
        pollfd waits[] = {{source.tee.descriptor(), POLLOUT, 0}, {signals, POLLIN, 0}};
        poll(waits, 2, 1000);
        serve(signals);
        source.tee.flush();
        if (ending_ && until == 0) until = clockMs() + kDrainTimeout;
        if (ending_ && clockMs() > until) source.tee.shut();
        continue;
      }
      pollfd rest{source.file, POLLIN, 0};
      if (poll(&rest, 1, 0) <= 0) break;
      pump(source);
    }
  }
}

Outcome EventLoop::run(pid_t job, int signals, Cgroup& cgroup) {
  job_ = job;
  if (spec_.timeoutMs != 0) deadline_ = clockMs() + spec_.timeoutMs;
  nextReap_ = clockMs() + kReapEvery;
  nextLook_ = clockMs() + kReapEvery;
  while (!childless_) {
    pollfd waits[5];
    nfds_t count = 0;
    waits[count++] = {signals, POLLIN, 0};
    for (Source& source : sources_) {
      const bool full = !source.tee.ready();
      if (source.file >= 0 && !full) waits[count++] = {source.file, POLLIN, 0};
      if (full) waits[count++] = {source.tee.descriptor(), POLLOUT, 0};
    }
    poll(waits, count, nextTimeout());
    for (nfds_t i = 1; i < count; ++i) {
      if (waits[i].revents == 0) continue;
      for (Source& source : sources_) {
        if (waits[i].fd == source.file) pump(source);
        else if (source.tee.pending() && waits[i].fd == source.tee.descriptor()) source.tee.flush();
      }
    }
    serve(signals);
    const bool reaped = reap();
    if (ledger_ != nullptr) watchLedger(reaped);
    watchOwner();
    if (!childless_) escalate(cgroup);
  }
  drain(signals);
  if (ledger_ != nullptr) reapSlots(ledger_);
  rusage used{};
  outcome_.lostBytes = log_.lost();
  if (getrusage(RUSAGE_CHILDREN, &used) == 0) outcome_.residentBytes = static_cast<uint64_t>(used.ru_maxrss) * 1024;
  return outcome_;
}

}  // namespace oomtune
