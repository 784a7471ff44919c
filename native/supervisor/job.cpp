#include "job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace oomtune {

namespace {

enum Step : int { kCwd = 1, kStreams, kExec };

struct Failure {
  int step;
  int error;
};

/** Everything that allocates is done before the fork. */
std::vector<std::string> candidates(const Spec& spec) {
  const std::string& name = spec.arguments[0];
  if (name.find('/') != std::string::npos) return {name};
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : spec.environment) {
    if (variable.rfind("PATH=", 0) == 0) path = variable.substr(5);
  }
  std::vector<std::string> all;
  for (size_t from = 0; from <= path.size();) {
    size_t colon = path.find(':', from);
    if (colon == std::string::npos) colon = path.size();
    const std::string folder = path.substr(from, colon - from);
    all.push_back((folder.empty() ? "." : folder) + "/" + name);
    from = colon + 1;
  }
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

[[noreturn]] void failChild(int report, int step, int error) {
  const Failure failure{step, error};
  if (write(report, &failure, sizeof failure) < 0) _exit(126);
  _exit(127);
}

}  // namespace

pid_t startJob(const Spec& spec, const Streams& streams, const Cgroup& cgroup, std::string* error) {
  const std::vector<std::string> files = candidates(spec);
  const std::vector<char*> arguments = pointers(spec.arguments);
  const std::vector<char*> environment = pointers(spec.environment);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    *error = std::string("pipe: ") + strerror(errno);
    return -1;
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    *error = std::string("fork: ") + strerror(errno);
    close(report[0]);
    close(report[1]);
    return -1;
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    cgroup.enter();
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    umask(streams.mask);
    if (dup2(streams.in, 0) < 0 || dup2(streams.out, 1) < 0 || dup2(streams.err, 2) < 0) {
      failChild(report[1], kStreams, errno);
    }
    if (chdir(spec.cwd.c_str()) != 0) failChild(report[1], kCwd, errno);
    int denied = 0;
    for (const std::string& file : files) {
      execve(file.c_str(), arguments.data(), environment.data());
      if (errno == EACCES) denied = EACCES;
      if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) failChild(report[1], kExec, errno);
    }
    failChild(report[1], kExec, denied != 0 ? denied : errno);
  }
  close(report[1]);
  Failure failure{};
  ssize_t got = 0;
  do {
    got = read(report[0], &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got != static_cast<ssize_t>(sizeof failure)) return pid;
  waitpid(pid, nullptr, 0);
  const std::string subject = failure.step == kCwd ? "cwd " + spec.cwd : spec.arguments[0];
  *error = subject + ": " + strerror(failure.error);
  return -1;
}

}  // namespace oomtune
