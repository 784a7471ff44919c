// What the hooks remember of single allocations.
#pragma once

#include "account.h"
#include "table.h"

namespace oomtune::cuda {

struct Allocation {
  uint64_t size;
  uint64_t context;  // freed with it; 0: not bound to one
  int16_t place;
  uint16_t kind;
  /** Of what dies with a context: contextAge() when it was made. Of an import: how often it is open. */
  uint32_t count;
};

/** Linear device memory, by address. */
extern Table<Allocation> linear;
/** Arrays and mipmapped arrays, by handle. */
extern Table<Allocation> arrays;
/** Pinned host memory, by address. */
extern Table<Allocation> pinned;
/** Imported memory, by address or by handle: `size` is what NVML counts twice. */
extern Table<Allocation> imports;
extern Table<Allocation> importedHandles;

/** The calling thread's context as it stands in an Allocation; 0: none. */
uint64_t currentContext();

/**
 * A driver may give a new context the handle of one that is gone. So what dies with a context is recognised by age: an
 * allocation records contextAge() when it is made, and releaseContext() takes only what is no younger than the age that
 * endContext() returned before the context was destroyed.
 */
uint32_t contextAge();
uint32_t endContext();

/** Everything that a context which is gone had. */
void releaseContext(uint64_t context, uint32_t age);

/** In the child of a fork. */
void forgetTables();

}  // namespace oomtune::cuda
