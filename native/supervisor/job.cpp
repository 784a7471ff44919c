#include "job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
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
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

constexpr char kRunMark[] = "OOMTUNE_RUN_DIR=";

/**
 * The launch's name as a limit that no program asks for (microseconds of real-time work without a pause, some thousand
 * years): children have it however they clear their environment or leave their session. src/runtime/marks.ts reads it.
 */
rlim_t markOf(const Spec& spec) {
  for (const std::string& variable : spec.environment) {
    if (variable.rfind(kRunMark, 0) != 0) continue;
    uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
    for (size_t i = sizeof kRunMark - 1; i < variable.size(); ++i) {
      hash = (hash ^ static_cast<unsigned char>(variable[i])) * 0x100000001b3ULL;
    }
    return 1ULL << 62 | hash >> 3;
  }
  return 0;
}

/** Where an administrator has set a limit it stays. */
void mark(const Spec& spec) {
  rlimit limit{};
  if (getrlimit(RLIMIT_RTTIME, &limit) != 0 || limit.rlim_max != RLIM_INFINITY) return;
  limit.rlim_cur = markOf(spec);
  if (limit.rlim_cur != 0) setrlimit(RLIMIT_RTTIME, &limit);
}

/** As in the shell that submitted it, and no more than we have ourselves: a limit that cannot be had stays as it is. */
void limit(const Spec& spec) {
  for (const SpecLimit& wanted : spec.limits) {
    rlimit now{};
    if (getrlimit(static_cast<__rlimit_resource_t>(wanted.resource), &now) != 0) continue;
    const rlim_t hard = wanted.hard < now.rlim_max ? wanted.hard : now.rlim_max;  // RLIM_INFINITY is the largest number
    now.rlim_cur = wanted.soft < hard ? wanted.soft : hard;
    now.rlim_max = hard;
    setrlimit(static_cast<__rlimit_resource_t>(wanted.resource), &now);
  }
}

[[noreturn]] void failChild(int report, int step, int error) {
  const Failure failure{step, error};
  if (write(report, &failure, sizeof failure) < 0) _exit(126);
  _exit(127);
}

/** In the child: sets up the process and executes the job. */
[[noreturn]] void execJob(const Spec& spec, const std::vector<std::string>& files, const std::vector<char*>& arguments,
                          const std::vector<char*>& environment, const Streams& streams, int report) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  umask(spec.mask >= 0 ? static_cast<mode_t>(spec.mask) : streams.mask);
  limit(spec);
  mark(spec);
  if (dup2(streams.in, 0) < 0 || dup2(streams.out, 1) < 0 || dup2(streams.err, 2) < 0) {
    failChild(report, kStreams, errno);
  }
  if (chdir(spec.cwd.c_str()) != 0) failChild(report, kCwd, errno);
  int denied = 0;
  for (const std::string& file : files) {
    execve(file.c_str(), arguments.data(), environment.data());
    if (errno == EACCES) denied = EACCES;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) failChild(report, kExec, errno);
  }
  failChild(report, kExec, denied != 0 ? denied : errno);
}

ssize_t readAll(int file, void* bytes, size_t size) {
  ssize_t got = 0;
  do {
    got = read(file, bytes, size);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

Job::~Job() {
  if (report_ >= 0) close(report_);
  if (go_ < 0) return;
  close(go_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

bool Job::spawn(const Spec& spec, const Streams& streams, const Cgroup& cgroup, std::string* error) {
  const std::vector<std::string> files = candidates(spec);
  const std::vector<char*> arguments = pointers(spec.arguments);
  const std::vector<char*> environment = pointers(spec.environment);
  int go[2];
  int report[2];
  if (pipe2(go, O_CLOEXEC) != 0) {
    *error = std::string("pipe: ") + strerror(errno);
    return false;
  }
  go_ = go[1];
  if (pipe2(report, O_CLOEXEC) != 0) {
    *error = std::string("pipe: ") + strerror(errno);
    close(go[0]);
    return false;
  }
  report_ = report[0];
  const pid_t parent = getpid();
  pid_ = cgroup.fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    close(go[1]);
    char word = 0;
    if (readAll(go[0], &word, 1) != 1) _exit(127);
    execJob(spec, files, arguments, environment, streams, report[1]);
  }
  if (pid_ < 0) *error = std::string("fork: ") + strerror(errno);
  close(go[0]);
  close(report[1]);
  return pid_ > 0;
}

/** Waits until the job runs or has failed to; false when a signal asked for its end first. */
bool Job::waitForExec(int signals) const {
  for (;;) {
    pollfd waits[] = {{report_, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[0].revents != 0) return true;
    signalfd_siginfo info{};
    while (read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGCHLD) return false;
    }
  }
}

bool Job::release(const Spec& spec, int signals, std::string* error) {
  const ssize_t sent = write(go_, "", 1);
  close(go_);
  go_ = -1;
  if (sent == 1 && !waitForExec(signals)) {
    *error = spec.arguments[0] + ": told to end before it had started";
    kill(pid_, SIGKILL);  // the keeper waits for one that does not die at once
    return false;
  }
  Failure failure{};
  // Somebody may have killed it while it waited: then whoever reaps it tells how it ended.
  const ssize_t got = sent == 1 ? readAll(report_, &failure, sizeof failure) : 0;
  close(report_);
  report_ = -1;
  if (got != static_cast<ssize_t>(sizeof failure)) return true;
  waitpid(pid_, nullptr, 0);
  const std::string subject = failure.step == kCwd ? "cwd " + spec.cwd : spec.arguments[0];
  *error = subject + ": " + strerror(failure.error);
  return false;
}

}  // namespace oomtune
