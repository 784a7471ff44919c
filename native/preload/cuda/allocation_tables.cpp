#include "allocation_tables.h"

#include <atomic>

#include "driver_calls.h"

namespace oomtune::cuda {

HashTable<Allocation> linear;
HashTable<Allocation> arrays;
HashTable<Allocation> pinned;
HashTable<Allocation> imports;
HashTable<Allocation> importedHandles;

namespace {

std::atomic<uint32_t> age{1};

}  // namespace

uint64_t currentContext() {
  Context context = nullptr;
  if (driver.ctxGetCurrent == nullptr || driver.ctxGetCurrent(&context) != kSuccess) return 0;
  return reinterpret_cast<uint64_t>(context);
}

uint32_t contextAge() { return age.load(std::memory_order_relaxed); }

uint32_t endContext() { return age.fetch_add(1); }

void releaseContext(uint64_t context, uint32_t age) {
  if (context == 0) return;
  auto gone = [context, age](uint64_t, const Allocation& allocation) {
    if (allocation.context != context || allocation.count > age) return false;
    account::release(allocation.deviceIndex, static_cast<Kind>(allocation.kind), allocation.size);
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
}

}  // namespace oomtune::cuda
