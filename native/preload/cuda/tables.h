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
  uint32_t reserved;
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

/** Everything that a context which is gone had. */
void releaseContext(uint64_t context);

/** In the child of a fork. */
void forgetTables();

}  // namespace oomtune::cuda
