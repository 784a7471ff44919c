#include "process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "process.h"

namespace oomtune {

namespace {

struct Link {
  pid_t pid;
  pid_t parent;
};

constexpr int kStopSweeps = 20;
/** python/oomtune/hook/fork/spare.py gives it to itself. */
constexpr char kSpareName[] = "oomtune-spare\n";

}  // namespace

std::vector<pid_t> descendants() {
  std::vector<Link> links;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return {};
  while (const dirent* entry = readdir(proc)) {
    char* end = nullptr;
    const long pid = strtol(entry->d_name, &end, 10);
    ProcessStat stat{};
    if (pid <= 0 || *end != '\0' || !readStat(static_cast<uint64_t>(pid), &stat)) continue;
    // A zombie leader may have threads, and a dead parent's children come to us only when it is reaped: keep the link.
    links.push_back({static_cast<pid_t>(pid), static_cast<pid_t>(stat.parent)});
  }
  closedir(proc);
  std::vector<pid_t> found{getpid()};
  for (size_t next = 0; next < found.size(); ++next) {
    for (const Link& link : links) {
      if (link.parent == found[next] && std::find(found.begin(), found.end(), link.pid) == found.end()) {
        found.push_back(link.pid);
      }
    }
  }
  found.erase(found.begin());
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](pid_t pid) { return !processExists(static_cast<uint64_t>(pid), 0); }),
              found.end());
  return found;
}

pid_t spareOf(const std::vector<pid_t>& processes) {
  for (pid_t pid : processes) {
    ProcessStat stat{};
    if (!readStat(static_cast<uint64_t>(pid), &stat) || static_cast<pid_t>(stat.parent) != getpid()) continue;
    char name[32] = "";
    const int file = open(("/proc/" + std::to_string(pid) + "/comm").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    const ssize_t got = read(file, name, sizeof name - 1);
    close(file);
    if (got > 0 && std::string(name, static_cast<size_t>(got)) == kSpareName) return pid;
  }
  return -1;
}

void signalTree(int signal) {
  for (pid_t pid : descendants()) {
    kill(pid, signal);
    kill(pid, SIGCONT);
  }
}

void killTree() {
  std::vector<pid_t> stopped;
  for (int sweep = 0; sweep < kStopSweeps; ++sweep) {
    bool more = false;
    for (pid_t pid : descendants()) {
      if (std::find(stopped.begin(), stopped.end(), pid) != stopped.end()) continue;
      kill(pid, SIGSTOP);
      stopped.push_back(pid);
      more = true;
    }
    if (!more) break;
  }
  for (pid_t pid : stopped) kill(pid, SIGKILL);
}

}  // namespace oomtune
