#include "tables.h"

#include "vmm.h"

namespace oomtune::cuda {

Table<Allocation> linear;
Table<Allocation> arrays;
Table<Allocation> pinned;
Table<Allocation> imports;
Table<Allocation> importedHandles;

void releaseContext(uint64_t context) {
  if (context == 0) return;
  auto gone = [context](uint64_t, const Allocation& allocation) {
    if (allocation.context != context) return false;
    account::release(allocation.place, static_cast<Kind>(allocation.kind), allocation.size);
    return true;
  };
  linear.takeIf(gone);
  arrays.takeIf(gone);
  pinned.takeIf(gone);
}

void forgetTables() {
  linear.forget();
  arrays.forget();
  pinned.forget();
  imports.forget();
  importedHandles.forget();
  forgetVmm();
}

}  // namespace oomtune::cuda
