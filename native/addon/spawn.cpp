#include "spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "failure.h"

extern char** environ;

namespace oomtune {

namespace {

constexpr int kReport = 3;

class Spawner : public Napi::AsyncWorker {
 public:
  Spawner(Napi::Env env, std::string executable, std::string folder, bool inherit)
      : Napi::AsyncWorker(env),
        promise_(Napi::Promise::Deferred::New(env)),
        executable_(std::move(executable)),
        folder_(std::move(folder)),
        inherit_(inherit) {}

  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) return SetError(std::string("pipe: ") + std::strerror(errno));
    pid_t starter = -1;
    const int error = start(report[1], &starter);
    close(report[1]);
    if (error != 0) {
      close(report[0]);
      return SetError(executable_ + ": " + std::strerror(error));
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
    pid_ = std::atoi(said.c_str());
    if (pid_ <= 0) SetError(executable_ + " could not take charge of " + folder_);
  }

  void OnOK() override { promise_.Resolve(Napi::Number::New(Env(), pid_)); }
  void OnError(const Napi::Error& error) override {
    promise_.Reject(failure(Env(), "SUPERVISOR_START", error.Message()).Value());
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

  Napi::Promise::Deferred promise_;
  std::string executable_;
  std::string folder_;
  bool inherit_;
  int pid_ = -1;
};

}  // namespace

Napi::Value spawnSupervisor(const Napi::CallbackInfo& info) {
  auto* spawner = new Spawner(info.Env(), info[0].As<Napi::String>().Utf8Value(),
                              info[1].As<Napi::String>().Utf8Value(), info[2].As<Napi::Boolean>().Value());
  spawner->Queue();
  return spawner->promise();
}

}  // namespace oomtune
