#include "supervisor_start.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "failure.h"

namespace oomtune {

namespace {

constexpr int kReport = 3;

/**
 * One start. On a dead file system it may take for ever: it waits on its own thread, not on one of libuv's four.
 */
class Spawner {
 public:
  Spawner(std::string executable, std::string folder, bool inherit)
      : executable_(std::move(executable)), folder_(std::move(folder)), inherit_(inherit) {}

  /** Returns the supervisor's pid; else 0, with a sentence in `error`. */
  int run(std::string* error) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
      *error = std::string("pipe: ") + std::strerror(errno);
      return 0;
    }
    pid_t starter = -1;
    const int code = start(report[1], &starter);
    close(report[1]);
    if (code != 0) {
      close(report[0]);
      *error = executable_ + ": " + std::strerror(code);
      return 0;
    }
    std::string said;
    char part[64];
    ssize_t got = 0;
    while ((got = read(report[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR)) {
      if (got > 0 && said.size() < sizeof part) said.append(part, static_cast<size_t>(got));
    }
    close(report[0]);
    int status = 0;
    while (waitpid(starter, &status, 0) < 0 && errno == EINTR) {
    }
    const int pid = std::atoi(said.c_str());
    if (pid <= 0) *error = executable_ + " could not take charge of " + folder_;
    return pid <= 0 ? 0 : pid;
  }

 private:
  int start(int report, pid_t* starter) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    // Where the pipe's end is 3 already, dup2 to itself clears its close-on-exec flag.
    posix_spawn_file_actions_adddup2(&files, report, kReport);
    for (int fd = 0; fd < 3; ++fd) {
      // Node marks its standard streams close-on-exec; dup2 to itself clears that.
      if (inherit_) posix_spawn_file_actions_adddup2(&files, fd, fd);
      if (!inherit_) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    }
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const std::string descriptor = std::to_string(kReport);
    char* arguments[] = {const_cast<char*>(executable_.c_str()), const_cast<char*>("--detach"),
                         const_cast<char*>("--report"),          const_cast<char*>(descriptor.c_str()),
                         const_cast<char*>(folder_.c_str()),     nullptr};
    const int error = posix_spawn(starter, executable_.c_str(), &files, &how, arguments, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error;
  }

  std::string executable_;
  std::string folder_;
  bool inherit_;
};

}  // namespace

Napi::Value spawnSupervisor(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Spawner spawner(info[0].As<Napi::String>().Utf8Value(), info[1].As<Napi::String>().Utf8Value(),
                  info[2].As<Napi::Boolean>().Value());
  // No shared_ptr: it would ask for a symbol that is as new as glibc 2.32.
  auto* promise = new Napi::Promise::Deferred(Napi::Promise::Deferred::New(env));
  auto done = Napi::ThreadSafeFunction::New(env, Napi::Function(), "oomtune:spawn", 0, 1);
  const Napi::Value kept = promise->Promise();
  std::thread([spawner, promise, done]() mutable {
    std::string error;
    const int pid = spawner.run(&error);
    // Fails if the environment is being torn down: then nobody waits any more, and the promise is gone.
    done.BlockingCall([promise, pid, error](Napi::Env inner, Napi::Function) {
      if (pid > 0) {
        promise->Resolve(Napi::Number::New(inner, pid));
      } else {
        promise->Reject(failure(inner, "SUPERVISOR_START", error).Value());
      }
      delete promise;
    });
    done.Release();
  }).detach();
  return kept;
}

}  // namespace oomtune
