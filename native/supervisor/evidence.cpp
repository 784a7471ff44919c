#include "evidence.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "cgroup.h"
#include "files.h"

namespace oomtune {

namespace {

constexpr size_t kCounterBytes = 1u << 20;

}  // namespace

int64_t oomKillLine(const std::string& text) {
  const std::string key = "oom_kill ";
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    char* end = nullptr;
    const long long value = strtoll(text.c_str() + at + key.size(), &end, 10);
    return end != text.c_str() + at + key.size() && value >= 0 ? value : -1;
  }
  return -1;
}

bool kernelNames(const std::string& line, int64_t pid) {
  const std::string key = "Killed process ";
  const size_t at = line.find(key);
  if (at == std::string::npos) return false;
  return strtoll(line.c_str() + at + key.size(), nullptr, 10) == pid;
}

OomEvidence::~OomEvidence() {
  if (kmsg_ >= 0) close(kmsg_);
}

void OomEvidence::begin(const std::string& group) {
  std::string unified;
  std::string memory;
  ownCgroups(&unified, &memory);
  if (!group.empty() && (groupBefore_ = oomKillLine(readFile(group + "/memory.events", kCounterBytes))) >= 0) {
    groupFile_ = group + "/memory.events";
    unified_ = own_ = true;
  } else if (!unified.empty() &&
             (groupBefore_ = oomKillLine(readFile(unified + "/memory.events", kCounterBytes))) >= 0) {
    groupFile_ = unified + "/memory.events";
    unified_ = true;
  } else if (!memory.empty() &&
             (groupBefore_ = oomKillLine(readFile(memory + "/memory.oom_control", kCounterBytes))) >= 0) {
    groupFile_ = memory + "/memory.oom_control";
  }
  systemBefore_ = oomKillLine(readFile("/proc/vmstat", kCounterBytes));
  kmsg_ = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (kmsg_ >= 0) lseek(kmsg_, 0, SEEK_END);
}

TriState OomEvidence::verdict(bool killed, int64_t mainPid) {
  if (kmsg_ >= 0) {
    char record[8192];  // one record a read
    for (;;) {
      const ssize_t got = read(kmsg_, record, sizeof record);
      if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: older records were overwritten
      if (got <= 0) break;
      if (kernelNames(std::string(record, static_cast<size_t>(got)), mainPid)) return TriState::kYes;
    }
  }
  const bool inGroup = groupBefore_ >= 0 && oomKillLine(readFile(groupFile_, kCounterBytes)) > groupBefore_;
  if (inGroup && (own_ || killed)) return TriState::kYes;
  // A child of the job may have been the victim, whom its parent reaped; or another job that shares the group.
  if (inGroup) return TriState::kUnknown;
  const int64_t systemNow = oomKillLine(readFile("/proc/vmstat", kCounterBytes));
  if (systemBefore_ >= 0 && systemNow == systemBefore_) return TriState::kNo;
  // Somebody on this machine was killed for memory. v2 would have counted it here even from a group below ours.
  if (unified_ || !killed) return TriState::kNo;
  return TriState::kUnknown;
}

}  // namespace oomtune
