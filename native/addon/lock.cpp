#include "lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace oomtune {

namespace {

Napi::Value refused(Napi::Env env, const std::string& path, int error) {
  const char* code = error == ENOENT ? "ENOENT" : error == EACCES ? "EACCES" : error == ENOLCK ? "ENOLCK" : "EIO";
  failure(env, code, path + ": " + std::strerror(error)).ThrowAsJavaScriptException();
  return env.Undefined();
}

}  // namespace

Napi::Value holdLock(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const std::string path = info[0].As<Napi::String>().Utf8Value();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return refused(env, path, errno);
  int error = 0;
  do {
    error = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return Napi::Number::New(env, file);
  close(file);
  if (error == EWOULDBLOCK) return env.Null();
  return refused(env, path, error);
}

}  // namespace oomtune
