#include "real_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compat.h"

namespace oomtune::cuda {

namespace {

// Every stand-in exports this; nothing else does.
constexpr char kMark[] = "oomtune_standin";

bool matchesMachine(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  unsigned char header[20] = {};
  ssize_t got = read(fd, header, sizeof header);
  close(fd);
#if defined(__x86_64__)
  constexpr unsigned machine = EM_X86_64;
#else
  constexpr unsigned machine = EM_AARCH64;
#endif
  return got == static_cast<ssize_t>(sizeof header) && memcmp(header, ELFMAG, SELFMAG) == 0 &&
         header[EI_CLASS] == ELFCLASS64 && (header[18] | header[19] << 8) == static_cast<int>(machine);
}

void* tryOpen(const char* candidate, char* path, unsigned long capacity) {
  if (candidate[0] != '/' || strlen(candidate) >= capacity || !matchesMachine(candidate)) return nullptr;
  void* handle = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    debugLine("cannot open %s: %s", candidate, why != nullptr ? why : "no reason given");
    return nullptr;
  }
  if (dlsym(handle, kMark) != nullptr) {
    dlclose(handle);
    return nullptr;
  }
  memcpy(path, candidate, strlen(candidate) + 1);
  return handle;
}

void* tryFolder(const char* folder, size_t length, const char* soname, char* path, unsigned long capacity) {
  char candidate[4096];
  if (length == 0 || length + strlen(soname) + 2 > sizeof candidate) return nullptr;
  memcpy(candidate, folder, length);
  candidate[length] = '/';
  memcpy(candidate + length + 1, soname, strlen(soname) + 1);
  return tryOpen(candidate, path, capacity);
}

void* trySearchPath(const char* soname, char* path, unsigned long capacity) {
  const char* at = getenv("LD_LIBRARY_PATH");
  while (at != nullptr && *at != '\0') {
    size_t length = strcspn(at, ":;");
    void* handle = tryFolder(at, length, soname, path, capacity);
    if (handle != nullptr) return handle;
    at += length;
    if (*at != '\0') ++at;
  }
  return nullptr;
}

/** The loader's cache holds absolute paths as zero-terminated strings: those that end in /soname are taken in order. */
void* tryLoaderCache(const char* soname, char* path, unsigned long capacity) {
  int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  off_t size = lseek(fd, 0, SEEK_END);
  void* memory = size > 0 ? mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  const char* begin = static_cast<const char*>(memory);
  const char* end = begin + size;
  size_t wanted = strlen(soname);
  void* handle = nullptr;
  for (const char* at = begin; handle == nullptr && at < end;) {
    const char* zero = static_cast<const char*>(memchr(at, '\0', static_cast<size_t>(end - at)));
    if (zero == nullptr) break;
    size_t length = static_cast<size_t>(zero - at);
    if (at[0] == '/' && length > wanted && zero[-static_cast<long>(wanted) - 1] == '/' &&
        memcmp(zero - wanted, soname, wanted) == 0) {
      handle = tryOpen(at, path, capacity);
    }
    at = zero + 1;
  }
  munmap(memory, static_cast<size_t>(size));
  return handle;
}

}  // namespace

void* openReal(const char* variable, const char* soname, const char* beside, char* path, unsigned long capacity) {
  path[0] = '\0';
  const char* named = getenv(variable);
  if (named != nullptr && named[0] != '\0') {
    void* handle = tryOpen(named, path, capacity);
    if (handle != nullptr) return handle;
    debugLine("%s names %s, which cannot be used", variable, named);
  }
  if (beside != nullptr) {
    const char* slash = strrchr(beside, '/');
    if (slash != nullptr) {
      void* handle = tryFolder(beside, static_cast<size_t>(slash - beside), soname, path, capacity);
      if (handle != nullptr) return handle;
    }
  }
  void* handle = trySearchPath(soname, path, capacity);
  if (handle == nullptr) handle = tryLoaderCache(soname, path, capacity);
  static const char* const kFolders[] = {
      "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",        "/usr/lib/wsl/lib",
      "/usr/local/nvidia/lib64",   "/run/opengl-driver/lib",     "/usr/lib64/nvidia", "/usr/lib",
  };
  for (const char* folder : kFolders) {
    if (handle == nullptr) handle = tryFolder(folder, strlen(folder), soname, path, capacity);
  }
  if (handle == nullptr) debugLine("no real %s was found; set %s to its path", soname, variable);
  return handle;
}

void debugLine(const char* format, ...) {
  const char* wanted = getenv("OOMTUNE_DEBUG");
  if (wanted == nullptr || wanted[0] == '\0' || wanted[0] == '0') return;
  char line[1024];
  int used = snprintf(line, sizeof line, "oomtune[%d]: ", static_cast<int>(getpid()));
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + used, sizeof line - static_cast<size_t>(used) - 1, format, arguments);
  va_end(arguments);
  size_t length = strlen(line);
  line[length] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, length + 1);
  (void)ignored;
}

}  // namespace oomtune::cuda
