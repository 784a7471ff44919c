// The next allocator in the loader's search order: glibc's, or one that the user preloads.
#pragma once

#include <cstddef>

namespace oomtune {

struct RealAllocator {
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*valloc)(size_t);
  size_t (*malloc_usable_size)(void*);
};

/** Null while this thread is looking the functions up: use bootstrapAllocate(). */
const RealAllocator* realAllocator();

/** dlsym itself may allocate while we look for malloc. A small arena that is never given back serves it. */
void* bootstrapAllocate(size_t alignment, size_t size);
bool fromBootstrap(const void* pointer);

}  // namespace oomtune
