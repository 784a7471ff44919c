// A program that allocates in every way, run under the host preload with a budget of 64 MiB by test/native. Each part
// prints what went wrong; silence is success.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr uint64_t MiB = 1 << 20;
// Volatile: the compiler knows what these sizes lead to, and would say so.
volatile size_t huge = SIZE_MAX;
int failures = 0;

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      printf("%s:%d: %s (live %llu)\n", part, __LINE__, #condition, ull(live())); \
      ++failures;                                                                 \
    }                                                                             \
  } while (0)

unsigned long long ull(uint64_t value) { return value; }

template <typename Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

uint64_t live() {
  static auto function = symbol<uint64_t (*)(int)>("oomtune_live");
  return function(-1);
}
uint64_t refused() { return symbol<uint64_t (*)()>("oomtune_refused")(); }

void counting() {
  const char* part = "counting";
  const uint64_t before = live();
  void* small = malloc(1000);
  CHECK(live() == before);
  void* tensor = nullptr;
  CHECK(posix_memalign(&tensor, 64, 1) == 0 && live() == before + 1);
  void* odd = nullptr;
  CHECK(posix_memalign(&odd, 8, 100) == 0 && live() == before + 101);
  CHECK((reinterpret_cast<uintptr_t>(odd) & 63) == 0);
  void* aligned = aligned_alloc(4096, 8192);
  CHECK(reinterpret_cast<uintptr_t>(aligned) % 4096 == 0 && live() == before + 8293);
  void* old = memalign(16, 7);
  CHECK(live() == before + 8300);
  void* page = valloc(10);
  CHECK(live() == before + 8310);
  void* pages = pvalloc(10);
  CHECK(live() == before + 8310 + 4096);
  void* array = malloc(65536);
  CHECK(live() == before + 8310 + 4096 + 65536);
  void* zeroed = calloc(1024, 64);
  CHECK(live() == before + 8310 + 4096 + 2 * 65536);
  for (void* pointer : {small, tensor, odd, aligned, old, page, pages, array, zeroed}) free(pointer);
  CHECK(live() == before);
  free(nullptr);
  void* sized = malloc(65536);
  symbol<void (*)(void*, size_t)>("free_sized")(sized, 65536);
  void* both = aligned_alloc(4096, 8192);
  symbol<void (*)(void*, size_t, size_t)>("free_aligned_sized")(both, 4096, 8192);
  CHECK(live() == before);
}

void growing() {
  const char* part = "growing";
  const uint64_t before = live();
  char* block = static_cast<char*>(realloc(nullptr, 100));
  memset(block, 7, 100);
  CHECK(live() == before);
  block = static_cast<char*>(realloc(block, 2 * MiB));
  CHECK(block[99] == 7 && live() == before + 2 * MiB);
  block = static_cast<char*>(realloc(block, 5 * MiB));
  CHECK(block[99] == 7 && live() == before + 5 * MiB);
  const uint64_t refusals = refused();
  errno = 0;
  CHECK(realloc(block, 100 * MiB) == nullptr && errno == ENOMEM && refused() == refusals + 1);
  CHECK(block[99] == 7 && live() == before + 5 * MiB);
  block = static_cast<char*>(reallocarray(block, 10, 100));
  CHECK(block[99] == 7 && live() == before);
  errno = 0;
  free(block);
  CHECK(reallocarray(nullptr, huge, 3) == nullptr && errno == ENOMEM);
  void* tensor = nullptr;
  CHECK(posix_memalign(&tensor, 64, 3 * MiB) == 0);
  tensor = realloc(tensor, 100);
  CHECK(live() == before);
  free(tensor);
  CHECK(live() == before);
}

void refusing() {
  const char* part = "refusing";
  const uint64_t before = live();
  void* const mark = &failures;
  void* out = mark;
  errno = 77;
  CHECK(posix_memalign(&out, 64, 100 * MiB) == ENOMEM && out == mark && errno == 77);
  errno = 77;
  CHECK(posix_memalign(&out, 3, 100) == EINVAL && out == mark && errno == 77);
  errno = 0;
  CHECK(malloc(100 * MiB) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(calloc(100, MiB) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(calloc(huge, 2) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(aligned_alloc(64, 100 * MiB) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(malloc(huge) == nullptr && errno == ENOMEM);
  CHECK(live() == before);
  void* fits = malloc(60 * MiB);
  CHECK(fits != nullptr && live() == before + 60 * MiB);
  free(fits);
}

void forking() {
  const char* part = "forking";
  void* mine = malloc(30 * MiB);
  const uint64_t before = live();
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    bool sound = live() == 0;
    free(mine);  // the parent's block: not the child's to take back
    sound = sound && live() == 0;
    void* own = malloc(20 * MiB);
    sound = sound && own != nullptr && live() == 20 * MiB && malloc(20 * MiB) == nullptr;
    if (write(ready[1], sound ? "y" : "n", 1) != 1) _exit(1);
    pause();
  }
  char said = 0;
  CHECK(read(ready[0], &said, 1) == 1 && said == 'y');
  CHECK(live() == before);
  CHECK(malloc(20 * MiB) == nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  void* again = malloc(20 * MiB);  // what the killed child held is to be had again
  CHECK(again != nullptr);
  free(again);
  free(mine);
  CHECK(live() == before - 30 * MiB);
  close(ready[0]);
  close(ready[1]);
}

/** A fork that goes on as a start of its own: it counts, and gives back, what the process that waits for it had. */
void lending() {
  const char* part = "lending";
  auto disown = symbol<void (*)()>("oomtune_disown");
  auto adopt = symbol<void (*)()>("oomtune_adopt");
  void* kept = malloc(10 * MiB);
  void* freed = malloc(30 * MiB);
  const uint64_t before = live();
  disown();
  CHECK(live() == 0);
  const pid_t child = fork();
  if (child == 0) {
    adopt();
    bool sound = live() == before && malloc(40 * MiB) == nullptr;
    free(freed);
    sound = sound && live() == before - 30 * MiB && malloc(40 * MiB) != nullptr;
    const pid_t worker = fork();
    if (worker == 0) {
      free(kept);
      _exit(live() == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(worker, &status, 0);
    sound = sound && status == 0 && live() == before + 10 * MiB;
    free(kept);
    _exit(sound && live() == before ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  adopt();
  CHECK(live() == before);
  free(kept);
  free(freed);
  CHECK(live() == before - 40 * MiB);
}

/** A child made without fork()'s handlers. */
void cloning() {
  const char* part = "cloning";
  void* mine = malloc(30 * MiB);
  const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    free(mine);
    void* own = malloc(20 * MiB);
    _exit(own != nullptr && live() == 20 * MiB ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(live() >= 30 * MiB);
  free(mine);
}

/** fork() handlers of other libraries may allocate, before and after ours. */
void handling() {
  const char* part = "handling";
  auto allocate = [] { free(malloc(MiB)); };
  pthread_atfork(allocate, allocate, allocate);
  const pid_t child = fork();
  if (child == 0) _exit(live() == 0 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

void* storm(void* number) {
  unsigned seed = static_cast<unsigned>(reinterpret_cast<uintptr_t>(number));
  void* held[16] = {};
  for (int i = 0; i < 20000; ++i) {
    void*& place = held[rand_r(&seed) % 16];
    const size_t size = static_cast<size_t>(rand_r(&seed)) % (3 * MiB);
    switch (rand_r(&seed) % 4) {
      case 0:
        free(place);
        place = malloc(size);
        break;
      case 1:
        free(place);
        if (posix_memalign(&place, 64, size) != 0) place = nullptr;
        break;
      case 2:
        if (void* moved = realloc(place, size + 1)) place = moved;
        break;
      default:
        free(place);
        place = nullptr;
        break;
    }
    if (i % 5000 == 0) {
      const pid_t child = fork();
      if (child == 0) {
        free(malloc(MiB));
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    }
  }
  for (void* pointer : held) free(pointer);
  return nullptr;
}

void storming() {
  const char* part = "storming";
  const uint64_t before = live();
  pthread_t threads[6];
  for (uintptr_t i = 0; i < 6; ++i) pthread_create(&threads[i], nullptr, storm, reinterpret_cast<void*>(i + 1));
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  CHECK(live() == before);
  CHECK(refused() > 0);
}

}  // namespace

int main() {
  if (dlsym(RTLD_DEFAULT, "oomtune_live") == nullptr) {
    puts("the preload is not loaded");
    return 2;
  }
  counting();
  growing();
  refusing();
  forking();
  lending();
  cloning();
  handling();
  storming();
  return failures == 0 ? 0 : 1;
}
