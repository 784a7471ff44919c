// The job's allocation calls. Counted: the memalign family at any size (torch's tensors), and malloc,
// calloc and realloc from 64 KiB up (arrays of numpy and others); smaller blocks are noise that would make peaks differ
// from run to run. Sizes are those asked for, not those given.
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "host_gate.h"
#include "real_allocator.h"

#define HOOK extern "C" __attribute__((visibility("default")))

using oomtune::bootstrapAllocate;
using oomtune::BudgetGate;
using oomtune::countedHere;
using oomtune::fromBootstrap;
using oomtune::hostGate;
using oomtune::kClassic;
using oomtune::kHostDevice;
using oomtune::realAllocator;
using oomtune::table;

namespace {

constexpr size_t kLarge = 64UL * 1024;
// Counted memalign blocks are aligned to this at least, so that free() can pass most small blocks on at a glance.
constexpr size_t kMarkAlignment = 64;

bool powerOfTwo(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

bool mayBeCounted(const oomtune::RealAllocator* real, void* pointer) {
  return (reinterpret_cast<uintptr_t>(pointer) & (kMarkAlignment - 1)) == 0 ||
         real->malloc_usable_size(pointer) >= kLarge;
}

bool remember(BudgetGate* gate, void* pointer, uint64_t size) {
  uint64_t stale = 0;
  const bool kept = table().put(pointer, size, &stale);
  if (countedHere(stale) != 0) gate->release(kHostDevice, kClassic, stale);
  return kept;
}

void counted(BudgetGate* gate, void* pointer, size_t size) {
  if (remember(gate, pointer, size)) {
    gate->commit(kHostDevice, kClassic, size);
  } else {
    gate->cancel(kHostDevice, size);
  }
}

void failed(BudgetGate* gate, size_t size, const char* api) {
  gate->cancel(kHostDevice, size);
  gate->refuse(kHostDevice, size, api, oomtune::kByDriver);
}

/** Reserve, allocate, count. `allocate` returns null on failure. Null with ENOMEM also when the budget refuses. */
template <typename Allocate>
void* gated(size_t size, const char* api, Allocate allocate) {
  BudgetGate* gate = hostGate();
  if (gate == nullptr) return allocate();
  if (!gate->reserve(kHostDevice, size, api)) {
    errno = ENOMEM;
    return nullptr;
  }
  void* pointer = allocate();
  if (pointer == nullptr) {
    const int error = errno;
    failed(gate, size, api);
    errno = error;
  } else {
    counted(gate, pointer, size);
  }
  return pointer;
}

size_t pageRounded(size_t size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size > SIZE_MAX - page ? size : (size + page - 1) & ~(page - 1);
}

}  // namespace

HOOK void* malloc(size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return bootstrapAllocate(16, size);
  if (size < kLarge) return real->malloc(size);
  return gated(size, "malloc", [=] { return real->malloc(size); });
}

HOOK void* calloc(size_t count, size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  size_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(count, size, &bytes);
  if (real == nullptr) return overflow ? nullptr : bootstrapAllocate(16, bytes);
  if (overflow || bytes < kLarge) return real->calloc(count, size);
  return gated(bytes, "calloc", [=] { return real->calloc(count, size); });
}

HOOK void free(void* pointer) {
  if (pointer == nullptr || fromBootstrap(pointer)) return;
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return;
  BudgetGate* gate = nullptr;
  uint64_t size = 0;
  if (mayBeCounted(real, pointer) && (gate = hostGate()) != nullptr && table().take(pointer, &size)) {
    real->free(pointer);
    if (countedHere(size) != 0) gate->release(kHostDevice, kClassic, size);
    return;
  }
  real->free(pointer);
}

// Since C23. Not handed on under their own names: an allocator below may not have them.
HOOK void free_sized(void* pointer, size_t) { free(pointer); }
HOOK void free_aligned_sized(void* pointer, size_t, size_t) { free(pointer); }

HOOK void* realloc(void* pointer, size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (pointer == nullptr) return malloc(size);
  if (real == nullptr || fromBootstrap(pointer)) {
    void* moved = malloc(size);
    const unsigned char* from = static_cast<const unsigned char*>(pointer);
    // The old size is not known: what follows the block in the arena may be read, never written.
    for (size_t i = 0; moved != nullptr && i < size && fromBootstrap(from + i); ++i) {
      static_cast<unsigned char*>(moved)[i] = from[i];
    }
    return moved;
  }
  uint64_t before = 0;
  BudgetGate* gate = nullptr;
  bool known = false;
  if (size >= kLarge || mayBeCounted(real, pointer)) {
    gate = hostGate();
    // Removed from the table before the block may move: another thread could get the old address at once.
    known = gate != nullptr && table().take(pointer, &before);
  }
  const uint64_t old = countedHere(before);
  const uint64_t now = size >= kLarge ? size : 0;  // a block below that size counts no longer, wherever it came from
  if (gate == nullptr || (!known && now == 0)) return real->realloc(pointer, size);
  const uint64_t extra = now > old ? now - old : 0;
  if (extra != 0 && !gate->reserve(kHostDevice, extra, "realloc")) {
    if (known) remember(gate, pointer, before);
    errno = ENOMEM;
    return nullptr;
  }
  void* moved = real->realloc(pointer, size);
  if (moved == nullptr && size != 0) {
    const int error = errno;
    if (extra != 0) gate->cancel(kHostDevice, extra);
    gate->refuse(kHostDevice, size, "realloc", oomtune::kByDriver);
    if (known) remember(gate, pointer, before);
    errno = error;
    return nullptr;
  }
  if (now != 0 && remember(gate, moved, now)) {
    if (extra != 0) gate->commit(kHostDevice, kClassic, extra);
    if (old > now) gate->release(kHostDevice, kClassic, old - now);
  } else {
    if (extra != 0) gate->cancel(kHostDevice, extra);
    if (old != 0) gate->release(kHostDevice, kClassic, old);
  }
  return moved;
}

HOOK void* reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(pointer, bytes);
}

HOOK int posix_memalign(void** out, size_t alignment, size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return (*out = bootstrapAllocate(alignment, size)) != nullptr ? 0 : ENOMEM;
  BudgetGate* gate = nullptr;
  const bool sound = powerOfTwo(alignment) && alignment % sizeof(void*) == 0;
  if (size == 0 || !sound || (gate = hostGate()) == nullptr) return real->posix_memalign(out, alignment, size);
  const int saved = errno;  // this call reports by its result alone
  int error = ENOMEM;
  if (gate->reserve(kHostDevice, size, "posix_memalign")) {
    error = real->posix_memalign(out, alignment < kMarkAlignment ? kMarkAlignment : alignment, size);
    if (error == 0) {
      counted(gate, *out, size);
    } else {
      failed(gate, size, "posix_memalign");
    }
  }
  errno = saved;
  return error;
}

HOOK void* aligned_alloc(size_t alignment, size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return bootstrapAllocate(alignment, size);
  if (size == 0 || !powerOfTwo(alignment)) return real->aligned_alloc(alignment, size);
  const size_t stricter = alignment < kMarkAlignment ? kMarkAlignment : alignment;
  return gated(size, "aligned_alloc", [=] { return real->aligned_alloc(stricter, size); });
}

HOOK void* memalign(size_t alignment, size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return bootstrapAllocate(alignment, size);
  if (size == 0) return real->memalign(alignment, size);
  const size_t stricter = alignment < kMarkAlignment ? kMarkAlignment : alignment;
  return gated(size, "memalign", [=] { return real->memalign(stricter, size); });
}

HOOK void* valloc(size_t size) {
  const oomtune::RealAllocator* real = realAllocator();
  if (real == nullptr) return bootstrapAllocate(4096, size);
  if (size == 0) return real->valloc(size);
  return gated(size, "valloc", [=] { return real->valloc(size); });
}

// By valloc, as other allocators that may stand below have no pvalloc: glibc's would hand out what they cannot free.
HOOK void* pvalloc(size_t size) { return valloc(pageRounded(size == 0 ? 1 : size)); }
