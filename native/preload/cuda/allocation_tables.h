// The allocations that the hooks have seen, by address or handle.
#pragma once

#include "account.h"
#include "hash_table.h"

namespace oomtune::cuda {

struct Allocation {
  uint64_t size;
  uint64_t context;  // freed with it; 0: not bound to one
  int16_t deviceIndex;
  uint16_t kind;
  /** For what is freed with a context: contextAge() at the allocation. For an import: how often it is open. */
  uint32_t count;
};

/** Linear device memory, by address. */
extern HashTable<Allocation> linear;
/** Arrays and mipmapped arrays, by handle. */
extern HashTable<Allocation> arrays;
/** Pinned host memory, by address. */
extern HashTable<Allocation> pinned;
/** Imported memory, by address or by handle: `size` is what NVML counts twice. */
extern HashTable<Allocation> imports;
extern HashTable<Allocation> importedHandles;

/** The calling thread's context, as Allocation::context; 0: none. */
uint64_t currentContext();

/**
 * A driver may give a new context the handle of a destroyed one. So allocations record contextAge(), and
 * releaseContext() releases only those that are no younger than the age that endContext() returned before the context
 * was destroyed.
 */
uint32_t contextAge();
uint32_t endContext();

/** Releases all allocations of a destroyed context. */
void releaseContext(uint64_t context, uint32_t age);

/** In a forked child: empties all tables. */
void forgetTables();

}  // namespace oomtune::cuda
