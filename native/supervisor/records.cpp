#include "records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "files.h"
#include "json.h"
#include "process.h"
#include "record_file.h"

#ifndef OOMTUNE_VERSION
#define OOMTUNE_VERSION "0.0.0"
#endif

namespace oomtune {

namespace {

constexpr unsigned kAgainSeconds = 1;

std::string text(int64_t value) { return std::to_string(value); }

std::string bootId() {
  const std::string id = readFile("/proc/sys/kernel/random/boot_id", 64);
  return id.substr(0, id.find('\n'));
}

struct Ending {
  std::string code = "null";
  std::string signal = "null";
  std::string by;
  std::string error = "null";
  TriState oom = TriState::kUnknown;
  uint32_t stragglers = 0;
  uint64_t residentBytes = 0;
  uint64_t lostBytes = 0;
};

std::string exitText(const std::string& startedAt, const Ending& end) {
  return "{\"schema\":1,\"code\":" + end.code + ",\"signal\":" + end.signal + ",\"ended_by\":" + quoted(end.by) +
         ",\"error\":" + end.error + ",\"host_oom\":" +
         (end.oom == TriState::kUnknown ? "null"
          : end.oom == TriState::kYes   ? "true"
                                        : "false") +
         ",\"started_at\":" + quoted(startedAt) + ",\"ended_at\":" + quoted(isoTime(nowNanoseconds())) +
         ",\"stragglers\":" + text(end.stragglers) +
         (end.residentBytes == 0 ? "" : ",\"resident_bytes\":" + text(static_cast<int64_t>(end.residentBytes))) +
         (end.lostBytes == 0 ? "" : ",\"lost_bytes\":" + text(static_cast<int64_t>(end.lostBytes))) + "}\n";
}

Ending endingOf(const Outcome& outcome, TriState oom) {
  Ending end;
  if (WIFSIGNALED(outcome.status)) {
    end.signal = quoted(signalName(WTERMSIG(outcome.status)));
  } else {
    end.code = text(WEXITSTATUS(outcome.status));
  }
  end.by = outcome.endedBy;
  end.oom = oom;
  end.stragglers = outcome.stragglers;
  end.residentBytes = outcome.residentBytes;
  end.lostBytes = outcome.lostBytes;
  return end;
}

void makeFolders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);
  }
  mkdir(path.c_str(), 0700);
}

/** Writes exit.json, and does not give up. */
void writeAtLast(const Folder& folder, const std::string& record) {
  int file = folder.file;
  for (;;) {
    const int error = writeRecord(file, "exit.json", record);
    if (error == 0) break;
    if (error == ENOENT) {
      if (file != folder.file) close(file);
      makeFolders(folder.path);
      file = open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
      if (file >= 0 && writeRecord(file, "exit.json", record) == 0) break;
    }
    sleep(kAgainSeconds);
  }
  unlinkat(file, "main.json", 0);
  if (file != folder.file) close(file);
}

}  // namespace

int writeSupervisorRecord(int folder, const std::string& startedAt, pid_t job, const std::string& cgroup,
                          const Spec& spec) {
  ProcessStat self{};
  ProcessStat main{};
  readStat(currentPid(), &self);
  const bool started = job > 0 && readStat(static_cast<uint64_t>(job), &main);
  return writeRecord(
      folder, "supervisor.json",
      "{\"schema\":1,\"pid\":" + text(currentPid()) + ",\"start_time\":" + text(static_cast<int64_t>(self.start)) +
          ",\"job_pid\":" + (job > 0 ? text(job) : "null") +
          ",\"job_start_time\":" + (started ? text(static_cast<int64_t>(main.start)) : "null") +
          ",\"cgroup\":" + (cgroup.empty() ? "null" : quoted(cgroup)) + ",\"boot_id\":" + quoted(bootId()) +
          ",\"started_at\":" + quoted(startedAt) + ",\"timeout_ms\":" + text(static_cast<int64_t>(spec.timeoutMs)) +
          ",\"grace_ms\":" + text(static_cast<int64_t>(spec.graceMs)) + ",\"version\":" + quoted(OOMTUNE_VERSION) +
          "}\n");
}

int writeMainExitRecord(int folder, const std::string& startedAt, const Outcome& outcome) {
  return writeRecord(folder, "main.json", exitText(startedAt, endingOf(outcome, TriState::kUnknown)));
}

void writeExitRecord(const Folder& folder, const std::string& startedAt, const Outcome& outcome, TriState oom,
                     const std::string& error) {
  Ending end = endingOf(outcome, oom);
  if (!error.empty()) {
    end = Ending{};
    end.by = "start-failed";
    end.error = quoted(error);
    end.oom = TriState::kNo;
  }
  writeAtLast(folder, exitText(startedAt, end));
}

void writeLostRecord(const Folder& folder, const std::string& startedAt, uint32_t stragglers) {
  if (renameat(folder.file, "main.json", folder.file, "exit.json") == 0 && fsync(folder.file) == 0) return;
  Ending end;
  end.by = "supervisor-lost";
  end.error = quoted("The supervisor was killed, or the machine went down; what was left of the job has been ended.");
  end.stragglers = stragglers;
  writeAtLast(folder, exitText(startedAt, end));
}

}  // namespace oomtune
