#include "peer.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "failure.h"

namespace oomtune {

namespace {

constexpr size_t kMostBytes = 1u << 20;  // of one entry: a group of a large directory lists all its members
constexpr int kMostGroups = 65536;       // NGROUPS_MAX of Linux

/** Calls a getpw… or getgr… with a buffer that grows until the entry fits. */
template <typename Entry, typename Ask>
bool entryOf(Entry* entry, std::vector<char>* buffer, Ask ask) {
  for (buffer->resize(4096); buffer->size() <= kMostBytes; buffer->resize(buffer->size() * 4)) {
    Entry* found = nullptr;
    int error = 0;
    do {
      error = ask(entry, buffer->data(), buffer->size(), &found);
    } while (error == EINTR);
    if (error != ERANGE) return error == 0 && found != nullptr;
  }
  return false;
}

Napi::Value number(Napi::Env env, uint64_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

}  // namespace

Napi::Value peerCredentials(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(info[0].As<Napi::Number>().Int32Value(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    failure(env, "EIO", std::string("SO_PEERCRED: ") + std::strerror(errno)).ThrowAsJavaScriptException();
    return env.Undefined();
  }
  Napi::Object found = Napi::Object::New(env);
  found.Set("pid", number(env, static_cast<uint64_t>(peer.pid)));
  found.Set("uid", number(env, peer.uid));
  found.Set("gid", number(env, peer.gid));
  return found;
}

Napi::Value accountOf(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const uid_t uid = info[0].As<Napi::Number>().Uint32Value();
  passwd entry{};
  std::vector<char> buffer;
  if (!entryOf(&entry, &buffer, [uid](passwd* to, char* bytes, size_t size, passwd** found) {
        return getpwuid_r(uid, to, bytes, size, found);
      })) {
    return env.Null();
  }
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0 && count <= kMostGroups) {
    groups.resize(static_cast<size_t>(count));
  }
  Napi::Array list = Napi::Array::New(env);
  for (int at = 0; at < count && at < static_cast<int>(groups.size()); ++at) {
    list.Set(static_cast<uint32_t>(at), number(env, groups[static_cast<size_t>(at)]));
  }
  Napi::Object account = Napi::Object::New(env);
  account.Set("name", Napi::String::New(env, entry.pw_name));
  account.Set("gid", number(env, entry.pw_gid));
  account.Set("home", Napi::String::New(env, entry.pw_dir));
  account.Set("shell", Napi::String::New(env, entry.pw_shell));
  account.Set("groups", list);
  return account;
}

Napi::Value groupNamed(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const std::string name = info[0].As<Napi::String>().Utf8Value();
  group entry{};
  std::vector<char> buffer;
  if (!entryOf(&entry, &buffer, [&name](group* to, char* bytes, size_t size, group** found) {
        return getgrnam_r(name.c_str(), to, bytes, size, found);
      })) {
    return env.Null();
  }
  return number(env, entry.gr_gid);
}

}  // namespace oomtune
