// oomtune-supervisor: owns one launch. It starts the job that DIR/spec describes, keeps its output in DIR/log, ends its
// whole process tree on a signal (SIGTERM: cancelled, SIGUSR1: timed out) or when its time is up, waits until none of
// it is left, and then writes DIR/exit.json. It outlives whoever started it. Its parent, the keeper, takes its place
// should it be killed.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cgroup.h"
#include "event_loop.h"
#include "evidence.h"
#include "file.h"
#include "files.h"
#include "job.h"
#include "json.h"
#include "keeper.h"
#include "log.h"
#include "process.h"
#include "record_file.h"
#include "records.h"
#include "spec.h"

namespace {

using namespace oomtune;

std::string text(int64_t value) { return std::to_string(value); }

bool readSpec(int folder, Spec* spec, std::string* error) {
  const int file = openat(folder, "spec", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    *error = std::string("spec: ") + strerror(errno);
    return false;
  }
  std::string bytes;
  char part[65536];
  ssize_t got = 0;
  while (bytes.size() <= kSpecBytes && ((got = read(file, part, sizeof part)) > 0 || (got < 0 && errno == EINTR))) {
    if (got > 0) bytes.append(part, static_cast<size_t>(got));
  }
  close(file);
  return parseSpec(bytes.data(), bytes.size(), spec, error);
}

int makeLedger(const std::string& folder, const Spec& spec, Ledger** ledger) {
  if (spec.devices.empty()) return 0;
  const std::string path = folder + "/ledger";
  std::vector<DeviceSetup> devices;
  devices.reserve(spec.devices.size());
  for (const SpecDevice& device : spec.devices) {
    devices.push_back({device.index, device.budget, device.name.c_str(), device.uuid.c_str()});
  }
  const int error = createLedger(path.c_str(), devices.data(), static_cast<uint32_t>(devices.size()));
  if (error == 0) *ledger = mapLedger(path.c_str(), true);
  if (*ledger != nullptr) guardLedger(*ledger);
  return error;
}

/** A signalfd for the signals that we act on; those that terminals and readers send are ignored. */
int takeSignals() {
  sigset_t served;
  sigemptyset(&served);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) sigaddset(&served, signal);
  sigprocmask(SIG_SETMASK, &served, nullptr);
  for (int signal : {SIGPIPE, SIGHUP, SIGQUIT, SIGTTOU, SIGTTIN, SIGTSTP, SIGUSR2, SIGALRM}) ::signal(signal, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  return signalfd(-1, &served, SFD_CLOEXEC | SFD_NONBLOCK);
}

struct Pipe {
  int read = -1;
  int write = -1;
  bool make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
};

/** Fills the three standard descriptors, so that no file of ours is taken for one of them. */
void guardStandardStreams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 3) fd = open("/dev/null", O_RDWR);
  if (fd >= 3) close(fd);
}

/** What the job reads; -1: see errno. A terminal cannot be read from another session; a pipe or a file can. */
int openInput(const Spec& spec) {
  if (spec.input.empty() && spec.inherit && isatty(0) == 0) return 0;
  const int in = open(spec.input.empty() ? "/dev/null" : spec.input.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (in >= 0 && spec.inputOffset > 0 && lseek(in, static_cast<off_t>(spec.inputOffset), SEEK_SET) < 0) {
    close(in);
    return -1;
  }
  return in;
}

/** Limits by the kernel, besides those of the libraries in the job. Where the kernel refuses, the log says so and the
 * job runs. */
void limitRegions(const Cgroup& cgroup, const Spec& spec, Log& log) {
  for (const SpecRegion& region : spec.regions) {
    const int code = cgroup.limit(region.name, region.bytes);
    if (code == 0) continue;
    const std::string note = "[oomtune: the kernel does not limit " + region.name + ": " + strerror(code) + "]\n";
    log.write(note.data(), note.size());
  }
}

int supervise(const Folder& launch, const std::string& startedAt, int report) {
  const std::string& path = launch.path;
  const int folder = launch.file;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const mode_t mask = umask(077);
  if (chdir("/") != 0) return 1;  // so that no file system stays busy
  Spec spec;
  Outcome outcome;
  Cgroup cgroup;
  bool recorded = false;
  auto record = [&](pid_t job) {
    recorded = true;
    return writeSupervisorRecord(folder, startedAt, job, cgroup.path(), spec);
  };
  auto failed = [&](const std::string& error) {
    if (!recorded) record(-1);
    unlinkat(folder, "spec", 0);
    writeExitRecord(launch, startedAt, outcome, TriState::kNo, error);
    return 0;
  };
  const int signals = takeSignals();
  if (signals < 0) return failed(std::string("supervisor: ") + strerror(errno));
  std::string error;
  if (!readSpec(folder, &spec, &error)) return failed(error);
  // How the job ended must be recorded even if the disk fills meanwhile.
  if (const int code = reserveRecord(folder, "exit.json")) return failed(std::string("exit.json: ") + strerror(code));
  Log log(folder, spec.logBytes);
  if (const int code = log.open()) return failed(std::string("log: ") + strerror(code));
  Ledger* ledger = nullptr;
  if (const int code = makeLedger(path, spec, &ledger)) return failed(std::string("ledger: ") + strerror(code));
  cgroup.make("oomtune-" + spec.job + "-" + text(spec.launch) + "-" + text(currentPid()));
  limitRegions(cgroup, spec, log);
  OomEvidence evidence;
  evidence.begin(cgroup.path());

  Pipe out;
  Pipe err;
  if (!out.make() || (spec.inherit && !err.make())) return failed(std::string("pipe: ") + strerror(errno));
  const int in = openInput(spec);
  if (in < 0) return failed("input " + spec.input + ": " + strerror(errno));
  Job job;
  if (!job.spawn(spec, {in, out.write, spec.inherit ? err.write : out.write, mask}, cgroup, &error))
    return failed(error);
  close(out.write);
  if (err.write >= 0) close(err.write);
  // Recorded before the job runs and before the spec is removed: a reader that finds neither concludes that nothing was
  // started, and one that finds this supervisor killed ends what is left in the group.
  if (record(job.pid()) != 0) return failed(std::string("supervisor: ") + strerror(errno));
  unlinkat(folder, "spec", 0);  // it holds the environment, and with it secrets
  if (!job.release(spec, signals, &error)) return failed(error);
  if (report >= 0) close(report);  // whoever waits for the start of the job reads the end of the file

  Log searchLog(folder, spec.logBytes, "search.log");
  EventLoop loop(spec, log, searchLog, ledger);
  loop.read(out.read, err.read, spec.inherit);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);  // whoever started us may wait for our streams to close
  // If this supervisor is killed while it waits for what the job left behind, main.json still says how the job ended.
  loop.onMainEnd = [&](const Outcome& main) { writeMainExitRecord(folder, startedAt, main); };
  outcome = loop.run(job.pid(), signals, cgroup);
  if (ledger != nullptr) trimLedger((path + "/ledger").c_str());
  writeExitRecord(launch, startedAt, outcome, evidence.verdict(outcome.killed, job.pid()), "");
  return 0;
}

int usage() {
  fputs("usage: oomtune-supervisor [--detach] [--report FD] DIR\n       oomtune-supervisor --version\n", stderr);
  return 2;
}

struct Options {
  bool detach = false;
  int report = -1;
  std::string folder;
};

bool readOptions(int count, char** arguments, Options* options) {
  int at = 1;
  if (at < count && strcmp(arguments[at], "--detach") == 0) {
    options->detach = true;
    ++at;
  }
  if (at + 1 < count && strcmp(arguments[at], "--report") == 0) {
    const char* fd = arguments[at + 1];
    if (strlen(fd) != 1 || fd[0] < '3' || fd[0] > '9') return false;
    options->report = fd[0] - '0';
    if (fcntl(options->report, F_SETFD, FD_CLOEXEC) != 0) return false;
    at += 2;
  }
  if (at + 1 != count || arguments[at][0] != '/') return false;
  options->folder = arguments[at];
  return true;
}

}  // namespace

/**
 * --detach: goes on in the background, in a session of its own; this process ends at once. --report FD: the pid of the
 * supervisor is written there, and the descriptor closed once the job has been started or could not be.
 */
int main(int count, char** arguments) {
  if (count == 2 && strcmp(arguments[1], "--version") == 0) {
    puts(OOMTUNE_VERSION);
    return 0;
  }
  guardStandardStreams();
  signal(SIGPIPE, SIG_IGN);  // whoever started us may be gone before we report
  Options options;
  if (!readOptions(count, arguments, &options)) return usage();
  const char* path = options.folder.c_str();
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0) {
    fprintf(stderr, "oomtune-supervisor: %s: %s\n", path, strerror(errno));
    return 2;
  }
  // One supervisor a folder, and a folder is used once. The lock is held until we are gone.
  if (flock(folder, LOCK_EX | LOCK_NB) != 0 || faccessat(folder, "supervisor.json", F_OK, 0) == 0) {
    fprintf(stderr, "oomtune-supervisor: %s: already used by a launch\n", path);
    return 2;
  }
  if (options.detach) {
    const pid_t child = fork();
    if (child < 0) {
      fprintf(stderr, "oomtune-supervisor: fork: %s\n", strerror(errno));
      return 1;
    }
    if (child > 0) return 0;
    setsid();
  }
  const Folder launch{options.folder, folder};
  const std::string startedAt = isoTime(nowNanoseconds());
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a killed supervisor leaves comes to this process, the keeper
  const pid_t supervisor = fork();
  if (supervisor < 0) {
    fprintf(stderr, "oomtune-supervisor: fork: %s\n", strerror(errno));
    return 1;
  }
  if (supervisor > 0) {
    if (options.report >= 0) close(options.report);
    return runKeeper(launch, startedAt, supervisor);
  }
  if (options.report >= 0) dprintf(options.report, "%d\n", static_cast<int>(getpid()));
  return supervise(launch, startedAt, options.report);
}
