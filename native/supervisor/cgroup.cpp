#include "cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

namespace oomtune {

namespace {

constexpr uint64_t kCloneIntoCgroup = 0x200000000ULL;

/** clone3(2)'s, as of Linux 5.7: older headers do not have all of it. */
struct CloneArguments {
  uint64_t flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize, cgroup;
};

}  // namespace

void ownCgroups(std::string* unified, std::string* memory) {
  unified->clear();
  memory->clear();
  FILE* file = fopen("/proc/self/cgroup", "re");
  if (file == nullptr) return;
  char line[4096];
  while (fgets(line, sizeof line, file) != nullptr) {
    line[strcspn(line, "\n")] = '\0';
    char* first = strchr(line, ':');
    char* second = first != nullptr ? strchr(first + 1, ':') : nullptr;
    if (second == nullptr || second[1] != '/') continue;
    const std::string controllers(first + 1, second);
    const std::string path = strcmp(second + 1, "/") == 0 ? "" : second + 1;
    if (controllers.empty()) {
      *unified = "/sys/fs/cgroup" + path;
      if (access((*unified + "/cgroup.procs").c_str(), F_OK) != 0 ||
          access("/sys/fs/cgroup/cgroup.controllers", F_OK) != 0) {
        *unified = "/sys/fs/cgroup/unified" + path;  // v1 and v2 side by side
      }
      if (access((*unified + "/cgroup.procs").c_str(), F_OK) != 0) unified->clear();
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      *memory = "/sys/fs/cgroup/memory" + path;
      // In a container the path is that of the host; what is mounted is the container's own group.
      if (access(memory->c_str(), F_OK) != 0) *memory = "/sys/fs/cgroup/memory";
      if (access((*memory + "/memory.oom_control").c_str(), R_OK) != 0) memory->clear();
    }
  }
  fclose(file);
}

bool Cgroup::make(const std::string& name) {
  std::string unified;
  std::string memory;
  ownCgroups(&unified, &memory);
  if (unified.empty() || access((unified + "/cgroup.procs").c_str(), W_OK) != 0) return false;
  const std::string path = unified + "/" + name;
  if (mkdir(path.c_str(), 0755) != 0) return false;
  folder_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) {
    rmdir(path.c_str());
    return false;
  }
  path_ = path;
  return true;
}

Cgroup::~Cgroup() {
  if (folder_ < 0) return;
  close(folder_);
  rmdir(path_.c_str());
}

int Cgroup::limit(const std::string& region, uint64_t bytes) const {
  return folder_ < 0 ? ENOENT : limitRegion(path_, region, bytes);
}

int limitRegion(const std::string& group, const std::string& region, uint64_t bytes) {
  const int file = open((group + "/dmem.max").c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const std::string line = region + " " + std::to_string(bytes) + "\n";
  const ssize_t done = write(file, line.data(), line.size());
  const int error = done == static_cast<ssize_t>(line.size()) ? 0 : done < 0 ? errno : EIO;
  close(file);
  return error;
}

pid_t Cgroup::fork() const {
  if (folder_ >= 0) {
    CloneArguments arguments{};
    arguments.flags = kCloneIntoCgroup;
    arguments.exitSignal = SIGCHLD;
    arguments.cgroup = static_cast<uint64_t>(folder_);
    // No C library wraps it. Without CLONE_VM it is a fork: the child goes on here, on its own copy of the stack.
    const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid >= 0) return static_cast<pid_t>(pid);
  }
  const pid_t pid = ::fork();
  if (pid == 0) enter();
  return pid;
}

void Cgroup::enter() const {
  const int procs = folder_ < 0 ? -1 : openat(folder_, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (procs >= 0 && write(procs, "0", 1) < 0) return;  // refused: it runs in ours, the sweeps still find it
}

void Cgroup::kill() const {
  if (folder_ < 0) return;
  const int file = openat(folder_, "cgroup.kill", O_WRONLY | O_CLOEXEC);  // since Linux 5.14
  if (file < 0) return;
  if (write(file, "1", 1) < 0) {
    // an older kernel; the sweeps do it
  }
  close(file);
}

}  // namespace oomtune
