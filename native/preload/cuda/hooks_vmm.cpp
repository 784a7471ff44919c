// Virtual memory management (torch's expandable segments, NCCL): charged when the physical memory is made, by where it
// lies; reservations of addresses and memory on the host are free. An import is its maker's to pay for.
#include "account.h"
#include "driver.h"
#include "imports.h"
#include "tables.h"
#include "vmm.h"

namespace oomtune::cuda {

namespace {

using account::Place;

OOMTUNE_HOOK(cuMemCreate, Handle* handle, size_t size, const AllocationProp* prop, unsigned long long flags) {
  const Place place = prop != nullptr ? account::placeOf(prop->location) : account::kNowhere;
  if (!account::admit(place, size, "cuMemCreate")) return kOutOfMemory;
  account::Unsettled unsettled;
  Result result = cuMemCreate_real(handle, size, prop, flags);
  account::settle(place, kVmm, size, result, "cuMemCreate");
  if (result == kSuccess && place >= 0 && !vmmCreated(*handle, place, size)) {
    account::release(place, kVmm, size);
    account::blind(kBlindHook);
  }
  return result;
}

OOMTUNE_HOOK(cuMemRelease, Handle handle) {
  account::Unsettled unsettled;
  Allocation import{};
  const bool imported = importedHandles.take(handle, &import);
  const uint32_t block = vmmReleasing(handle);
  Result result = cuMemRelease_real(handle);
  vmmReleased(handle, block, result == kSuccess);
  if (imported && result == kSuccess) importGone(import.place, import.size);
  if (imported && result != kSuccess) importedHandles.put(handle, import);
  return result;
}

OOMTUNE_HOOK(cuMemMap, Address address, size_t size, size_t offset, Handle handle, unsigned long long flags) {
  Result result = cuMemMap_real(address, size, offset, handle, flags);
  if (result == kSuccess) vmmMapped(address, size, handle);
  return result;
}

OOMTUNE_HOOK(cuMemUnmap, Address address, size_t size) {
  account::Unsettled unsettled;
  Result result = cuMemUnmap_real(address, size);
  if (result == kSuccess) vmmUnmapped(address, size);
  return result;
}

OOMTUNE_HOOK(cuMemRetainAllocationHandle, Handle* handle, void* address) {
  Result result = cuMemRetainAllocationHandle_real(handle, address);
  if (result == kSuccess) vmmRetained(*handle, reinterpret_cast<Address>(address));
  return result;
}

OOMTUNE_HOOK(cuMemImportFromShareableHandle, Handle* handle, void* from, int type) {
  const Place place = account::placeOfCurrent();
  const BeforeImport before = beforeImport(place);
  Result result = cuMemImportFromShareableHandle_real(handle, from, type);
  if (result != kSuccess) return result;
  const uint64_t seen = afterImport(place, before, 0);
  if (seen != 0) importedHandles.put(*handle, Allocation{seen, 0, static_cast<int16_t>(place), kIpc, 1});
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemCreate), OOMTUNE_HOOKED(cuMemRelease),
    OOMTUNE_HOOKED(cuMemMap),    OOMTUNE_HOOKED(cuMemUnmap),
    OOMTUNE_HOOKED(cuMemRetainAllocationHandle),
    OOMTUNE_HOOKED(cuMemImportFromShareableHandle),
};

}  // namespace

extern const HookList kVmmHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
