// Virtual memory management (torch's expandable segments, NCCL): charged when the physical memory is made, by where it
// lies; reservations of addresses and memory on the host are free. An import is its maker's to pay for.
#include <cstdlib>
#include <cstring>

#include "admission.h"
#include "allocation_tables.h"
#include "driver.h"
#include "imported_memory.h"
#include "vmm.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

OOMTUNE_HOOK(cuMemCreate, Handle* handle, size_t size, const AllocationProp* prop, unsigned long long flags) {
  const DeviceIndex deviceIndex = prop != nullptr ? account::deviceIndexOf(prop->location) : account::kNotCounted;
  if (!account::admit(deviceIndex, size, "cuMemCreate")) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = cuMemCreate_real(handle, size, prop, flags);
  account::settle(deviceIndex, kVmm, size, result, "cuMemCreate");
  if (result == kSuccess && deviceIndex >= 0 && !vmmCreated(*handle, deviceIndex, size)) {
    account::release(deviceIndex, kVmm, size);
    account::markBlind(kBlindHook);
  }
  return result;
}

OOMTUNE_HOOK(cuMemRelease, Handle handle) {
  account::DriverCall driverCallUnderWay;
  Allocation import{};
  const bool imported = importedHandles.take(handle, &import);
  const uint32_t block = vmmReleasing(handle);
  Result result = cuMemRelease_real(handle);
  vmmReleased(handle, block, result == kSuccess);
  // A multicast object's, perhaps: what is bound to it is held by it no more
  if (block == UINT32_MAX && result == kSuccess) vmmLetGo(handle, account::kNotCounted, 0, UINT64_MAX);
  if (imported && result == kSuccess) importGone(import.deviceIndex, import.size);
  if (imported && result != kSuccess) importedHandles.put(handle, import);
  return result;
}

OOMTUNE_HOOK(cuMemMap, Address address, size_t size, size_t offset, Handle handle, unsigned long long flags) {
  Result result = cuMemMap_real(address, size, offset, handle, flags);
  if (result == kSuccess) vmmMapped(address, size, handle);
  return result;
}

OOMTUNE_HOOK(cuMemUnmap, Address address, size_t size) {
  account::DriverCall driverCallUnderWay;
  Result result = cuMemUnmap_real(address, size);
  if (result == kSuccess) vmmUnmapped(address, size);
  return result;
}

uint64_t pieceOf(const ArrayMapInfo& info) {
  uint64_t name = static_cast<uint64_t>(info.subresourceType);
  for (const unsigned long long part : info.subresource) name = name * 0x9e3779b97f4a7c15ULL + part;
  return name & (UINT64_MAX >> 1);
}

/**
 * In the order of the stream; counted at once, as nothing tells when it is done. The list is read before the call: it
 * is not const, and a driver may leave other words in it.
 */
template <typename Call>
Result mapArrays(const ArrayMapInfo* list, unsigned int count, Call call) {
  const bool readable = list != nullptr && count > 0;
  auto* asked = readable ? static_cast<ArrayMapInfo*>(malloc(count * sizeof(ArrayMapInfo))) : nullptr;
  if (asked != nullptr) memcpy(asked, list, count * sizeof(ArrayMapInfo));
  account::DriverCall driverCallUnderWay;
  const Result result = call();
  const ArrayMapInfo* reported = asked != nullptr ? asked : list;
  for (unsigned int i = 0; readable && result == kSuccess && i < count; ++i) {
    const uint64_t piece = pieceOf(reported[i]);
    if (reported[i].operation == kMapOperation) vmmInArray(reported[i].resource, piece, reported[i].handle);
    if (reported[i].operation == kUnmapOperation) vmmLetGo(reported[i].resource, account::kNotCounted, piece, 1);
  }
  free(asked);
  return result;
}

OOMTUNE_HOOK(cuMemMapArrayAsync, ArrayMapInfo* list, unsigned int count, Stream stream) {
  return mapArrays(list, count, [&] { return cuMemMapArrayAsync_real(list, count, stream); });
}

OOMTUNE_HOOK(cuMemMapArrayAsync_ptsz, ArrayMapInfo* list, unsigned int count, Stream stream) {
  return mapArrays(list, count, [&] { return cuMemMapArrayAsync_ptsz_real(list, count, stream); });
}

OOMTUNE_HOOK(cuMulticastBindMem, Handle object, size_t at, Handle memory, size_t offset, size_t size,
             unsigned long long flags) {
  Result result = cuMulticastBindMem_real(object, at, memory, offset, size, flags);
  if (result == kSuccess) vmmBound(object, at, memory);
  return result;
}

OOMTUNE_HOOK(cuMulticastBindMem_v2, Handle object, Device device, size_t at, Handle memory, size_t offset, size_t size,
             unsigned long long flags) {
  Result result = cuMulticastBindMem_v2_real(object, device, at, memory, offset, size, flags);
  if (result == kSuccess) vmmBound(object, at, memory);
  return result;
}

OOMTUNE_HOOK(cuMulticastBindAddr, Handle object, size_t at, Address address, size_t size, unsigned long long flags) {
  Result result = cuMulticastBindAddr_real(object, at, address, size, flags);
  if (result == kSuccess) vmmBoundAt(object, at, address);
  return result;
}

OOMTUNE_HOOK(cuMulticastBindAddr_v2, Handle object, Device device, size_t at, Address address, size_t size,
             unsigned long long flags) {
  Result result = cuMulticastBindAddr_v2_real(object, device, at, address, size, flags);
  if (result == kSuccess) vmmBoundAt(object, at, address);
  return result;
}

OOMTUNE_HOOK(cuMulticastUnbind, Handle object, Device device, size_t at, size_t size) {
  account::DriverCall driverCallUnderWay;
  Result result = cuMulticastUnbind_real(object, device, at, size);
  if (result == kSuccess) vmmLetGo(object, account::deviceIndexOf(device), at, size);
  return result;
}

OOMTUNE_HOOK(cuMemRetainAllocationHandle, Handle* handle, void* address) {
  Result result = cuMemRetainAllocationHandle_real(handle, address);
  if (result == kSuccess) vmmRetained(*handle, reinterpret_cast<Address>(address));
  return result;
}

OOMTUNE_HOOK(cuMemImportFromShareableHandle, Handle* handle, void* from, int type) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  const BeforeImport before = beforeImport(deviceIndex);
  Result result = cuMemImportFromShareableHandle_real(handle, from, type);
  if (result != kSuccess) return result;
  const uint64_t seen = afterImport(deviceIndex, before, 0);
  if (seen != 0) importedHandles.put(*handle, Allocation{seen, 0, static_cast<int16_t>(deviceIndex), kIpc, 1});
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemCreate),
    OOMTUNE_HOOKED(cuMemRelease),
    OOMTUNE_HOOKED(cuMemMap),
    OOMTUNE_HOOKED(cuMemUnmap),
    OOMTUNE_HOOKED(cuMemRetainAllocationHandle),
    OOMTUNE_HOOKED(cuMemImportFromShareableHandle),
    OOMTUNE_HOOKED(cuMemMapArrayAsync),
    OOMTUNE_HOOKED(cuMemMapArrayAsync_ptsz),
    OOMTUNE_HOOKED(cuMulticastBindMem),
    OOMTUNE_HOOKED(cuMulticastBindMem_v2),
    OOMTUNE_HOOKED(cuMulticastBindAddr),
    OOMTUNE_HOOKED(cuMulticastBindAddr_v2),
    OOMTUNE_HOOKED(cuMulticastUnbind),
};

}  // namespace

extern const HookList kVmmHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
