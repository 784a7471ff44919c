#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace oomtune {

std::string readFile(const std::string& path, size_t largest) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return "";
  std::string text;
  char part[16384];
  while (text.size() < largest) {
    const ssize_t got = read(file, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  close(file);
  return text;
}

}  // namespace oomtune
