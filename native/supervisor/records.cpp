#include "records.h"

#include <sys/wait.h>

#include "files.h"
#include "json.h"
#include "process.h"

#ifndef OOMTUNE_VERSION
#define OOMTUNE_VERSION "0.0.0"
#endif

namespace oomtune {

namespace {

std::string text(int64_t value) { return std::to_string(value); }

std::string bootId() {
  const std::string id = readFile("/proc/sys/kernel/random/boot_id", 64);
  return id.substr(0, id.find('\n'));
}

}  // namespace

int writeWho(int folder, const std::string& startedAt, pid_t job, const std::string& cgroup) {
  ProcessStat self{};
  ProcessStat main{};
  readStat(currentPid(), &self);
  const bool started = job > 0 && readStat(static_cast<uint64_t>(job), &main);
  return writeRecord(folder, "supervisor.json",
                     "{\"schema\":1,\"pid\":" + text(currentPid()) + ",\"start_time\":" + text(static_cast<int64_t>(self.start)) +
                         ",\"job_pid\":" + (job > 0 ? text(job) : "null") +
                         ",\"job_start_time\":" + (started ? text(static_cast<int64_t>(main.start)) : "null") +
                         ",\"cgroup\":" + (cgroup.empty() ? "null" : quoted(cgroup)) + ",\"boot_id\":" + quoted(bootId()) +
                         ",\"started_at\":" + quoted(startedAt) + ",\"version\":" + quoted(OOMTUNE_VERSION) + "}\n",
                     false);
}

int writeExit(int folder, const std::string& startedAt, const Outcome& outcome, Told oom, const std::string& error) {
  const bool failed = !error.empty();
  const bool signalled = !failed && WIFSIGNALED(outcome.status);
  const std::string code = failed || signalled ? "null" : text(WEXITSTATUS(outcome.status));
  return writeRecord(
      folder, "exit.json",
      "{\"schema\":1,\"code\":" + code +
          ",\"signal\":" + (signalled ? quoted(signalName(WTERMSIG(outcome.status))) : "null") +
          ",\"ended_by\":" + quoted(failed ? "start-failed" : outcome.endedBy) +
          ",\"error\":" + (failed ? quoted(error) : "null") +
          ",\"host_oom\":" + (oom == Told::kUnknown ? "null" : oom == Told::kYes ? "true" : "false") +
          ",\"started_at\":" + quoted(startedAt) + ",\"ended_at\":" + quoted(isoTime(nowNanoseconds())) +
          ",\"stragglers\":" + text(outcome.stragglers) + "}\n",
      true);
}

}  // namespace oomtune
