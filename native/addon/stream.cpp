#include "stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace oomtune {

namespace {

constexpr size_t kMostOfSocket = 4u << 20;

/** Copies what the pipe holds by tee(2), which takes nothing out. False: see errno. */
bool peekPipe(int fd, std::string* bytes) {
  int waiting = 0;
  if (ioctl(fd, FIONREAD, &waiting) != 0) return false;
  if (waiting == 0) return true;
  int copy[2];
  if (pipe2(copy, O_CLOEXEC) != 0) return false;
  // As many pages as the other has, since tee shares pages and does not fill them up.
  fcntl(copy[1], F_SETPIPE_SZ, fcntl(fd, F_GETPIPE_SZ));
  const ssize_t got = tee(fd, copy[1], static_cast<size_t>(waiting), SPLICE_F_NONBLOCK);
  const int error = errno;
  close(copy[1]);
  if (got > 0) bytes->resize(static_cast<size_t>(got));
  size_t done = 0;
  while (done < bytes->size()) {
    const ssize_t part = read(copy[0], bytes->data() + done, bytes->size() - done);
    if (part <= 0) break;
    done += static_cast<size_t>(part);
  }
  close(copy[0]);
  errno = error;
  return got == waiting && done == bytes->size();
}

bool peekSocket(int fd, std::string* bytes) {
  bytes->resize(kMostOfSocket);
  const ssize_t got = recv(fd, bytes->data(), bytes->size(), MSG_PEEK | MSG_DONTWAIT);
  const int error = errno;
  bytes->resize(got > 0 ? static_cast<size_t>(got) : 0);
  errno = error;
  return got >= 0 || error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

Napi::Value peekStream(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const int fd = info[0].As<Napi::Number>().Int32Value();
  int type = 0;  // not by fstat(), which is a symbol of glibc 2.33
  socklen_t length = sizeof type;
  const bool isSocket = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
  // Asked before the bytes are copied: what was written before the end is then among them.
  pollfd wait{fd, POLLIN | POLLRDHUP, 0};
  std::string bytes;
  const bool seen = poll(&wait, 1, 0) >= 0 && (isSocket ? peekSocket(fd, &bytes) : peekPipe(fd, &bytes));
  if (!seen) throw failure(env, "EIO", std::string("stdin: ") + std::strerror(errno));
  const bool ended = (wait.revents & (POLLHUP | POLLRDHUP)) != 0 && bytes.size() < kMostOfSocket;
  Napi::Object found = Napi::Object::New(env);
  found.Set("bytes", Napi::Buffer<char>::Copy(env, bytes.data(), bytes.size()));
  found.Set("ended", Napi::Boolean::New(env, ended));
  return found;
}

}  // namespace oomtune
