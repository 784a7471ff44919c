#include "wait.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "process.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace oomtune {

namespace {

constexpr useconds_t kLookEvery = 100000;  // us, without pidfds

void sleepUntilGone(uint64_t pid, uint64_t start) {
  const int file = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0u));
  // Checked while the descriptor is held: the pid cannot be reused in between.
  if (file >= 0 && processExists(pid, start)) {
    pollfd wait{file, POLLIN, 0};
    while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
    }
  }
  if (file >= 0) {
    close(file);
    return;
  }
  while (processExists(pid, start)) usleep(kLookEvery);
}

}  // namespace

Napi::Value waitForProcess(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const uint64_t pid = static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value());
  const uint64_t start = static_cast<uint64_t>(info[1].As<Napi::Number>().Int64Value());
  // No shared_ptr: it would ask for a symbol that is as new as glibc 2.32.
  auto* promise = new Napi::Promise::Deferred(Napi::Promise::Deferred::New(env));
  auto done = Napi::ThreadSafeFunction::New(env, Napi::Function(), "oomtune:wait", 0, 1);
  std::thread([=]() mutable {
    sleepUntilGone(pid, start);
    // Fails if the environment is being torn down: then nobody waits any more, and the promise is gone.
    done.BlockingCall([promise](Napi::Env inner, Napi::Function) {
      promise->Resolve(inner.Undefined());
      delete promise;
    });
    done.Release();
  }).detach();
  return promise->Promise();
}

}  // namespace oomtune
