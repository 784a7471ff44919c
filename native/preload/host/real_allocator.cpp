#include "real_allocator.h"

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

#include "compat.h"

namespace oomtune {

namespace {

constexpr size_t kArena = 64UL * 1024;
alignas(64) unsigned char arena[kArena];
std::atomic<size_t> arenaUsed{0};

RealAllocator real;
std::atomic<int> state{0};  // 0: not looked up, 1: a thread looks it up, 2: done
__thread bool looking = false;

template <typename Function>
void find(Function& into, const char* name) {
  into = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool ofOneLibrary(const void* one, const void* other) {
  Dl_info first{};
  Dl_info second{};
  return dladdr(one, &first) != 0 && dladdr(other, &second) != 0 && first.dli_fbase == second.dli_fbase;
}

/** For an allocator that does not tell sizes: any block may be a counted one. */
size_t unknownSize(void*) { return SIZE_MAX; }

}  // namespace

const RealAllocator* realAllocator() {
  if (__builtin_expect(state.load(std::memory_order_acquire) == 2, 1)) return &real;
  if (looking) return nullptr;
  int expected = 0;
  if (state.compare_exchange_strong(expected, 1)) {
    looking = true;
    find(real.malloc, "malloc");
    find(real.free, "free");
    find(real.calloc, "calloc");
    find(real.realloc, "realloc");
    find(real.posix_memalign, "posix_memalign");
    find(real.aligned_alloc, "aligned_alloc");
    find(real.memalign, "memalign");
    find(real.valloc, "valloc");
    find(real.malloc_usable_size, "malloc_usable_size");
    // glibc's would read its own marks before blocks that another allocator made.
    const bool same = ofOneLibrary(reinterpret_cast<const void*>(real.malloc),
                                   reinterpret_cast<const void*>(real.malloc_usable_size));
    if (!same) real.malloc_usable_size = unknownSize;
    looking = false;
    state.store(2, std::memory_order_release);
    return &real;
  }
  while (state.load(std::memory_order_acquire) != 2) sched_yield();
  return &real;
}

void* bootstrapAllocate(size_t alignment, size_t size) {
  if (alignment < 16) alignment = 16;
  if (size > kArena || alignment > kArena) return nullptr;
  size_t used = arenaUsed.load();
  for (;;) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(arena);
    const size_t start = ((base + used + alignment - 1) & ~(alignment - 1)) - base;
    if (start + size > kArena) return nullptr;
    if (arenaUsed.compare_exchange_weak(used, start + size)) return arena + start;  // zeroed: it is used only once
  }
}

bool fromBootstrap(const void* pointer) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t base = reinterpret_cast<uintptr_t>(arena);
  return at >= base && at < base + kArena;
}

}  // namespace oomtune
