// Linear device memory that belongs to a context: plain, pitched, managed; and what comes in from other processes.
#include "admission.h"
#include "allocation_tables.h"
#include "driver.h"
#include "imported_memory.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

void remember(DeviceIndex deviceIndex, Kind kind, uint64_t size, Address address) {
  if (deviceIndex < 0) return;
  Allocation allocation{size, currentContext(), static_cast<int16_t>(deviceIndex), static_cast<uint16_t>(kind),
                        contextAge()};
  // Without memory for the note the bytes would never be taken back: better to forget them now, and to say so.
  if (!linear.put(address, allocation)) {
    account::release(deviceIndex, kind, size);
    account::markBlind(kBlindHook);
  }
}

OOMTUNE_HOOK(cuMemAlloc_v2, Address* address, size_t size) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  const uint64_t bytes = account::physical(size);
  if (!account::admit(deviceIndex, bytes, "cuMemAlloc_v2")) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = cuMemAlloc_v2_real(address, size);
  account::settle(deviceIndex, kClassic, bytes, result, "cuMemAlloc_v2");
  if (result == kSuccess) remember(deviceIndex, kClassic, bytes, *address);
  return result;
}

OOMTUNE_HOOK(cuMemFree_v2, Address address) {
  // Taken out first: as soon as the driver has it back, another thread may be given the same address.
  account::DriverCall driverCallUnderWay;
  Allocation allocation{};
  const bool ours = linear.take(address, &allocation);
  Result result = cuMemFree_v2_real(address);
  if (!ours) return result;
  if (result == kSuccess) {
    account::release(allocation.deviceIndex, static_cast<Kind>(allocation.kind), allocation.size);
  } else {
    linear.put(address, allocation);
  }
  return result;
}

OOMTUNE_HOOK(cuMemAllocPitch_v2, Address* address, size_t* pitch, size_t width, size_t height, unsigned int element) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  // The driver has the last word on the pitch; 512 is the least alignment of all devices so far.
  const uint64_t expected = account::physical(((width + 511) & ~static_cast<size_t>(511)) * height);
  if (!account::admit(deviceIndex, expected, "cuMemAllocPitch_v2")) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = cuMemAllocPitch_v2_real(address, pitch, width, height, element);
  account::settle(deviceIndex, kClassic, expected, result, "cuMemAllocPitch_v2");
  if (result != kSuccess) return result;
  const uint64_t real = account::physical(*pitch * height);
  if (real < expected) account::release(deviceIndex, kClassic, expected - real);
  if (real > expected && !account::admit(deviceIndex, real - expected, "cuMemAllocPitch_v2")) {
    cuMemFree_v2_real(*address);
    *address = 0;
    account::release(deviceIndex, kClassic, expected);
    return kOutOfMemory;
  }
  if (real > expected) account::settle(deviceIndex, kClassic, real - expected, kSuccess, "cuMemAllocPitch_v2");
  remember(deviceIndex, kClassic, real, *address);
  return result;
}

OOMTUNE_HOOK(cuMemAllocManaged, Address* address, size_t size, unsigned int flags) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  if (!account::admit(deviceIndex, size, "cuMemAllocManaged")) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = cuMemAllocManaged_real(address, size, flags);
  account::settle(deviceIndex, kManaged, size, result, "cuMemAllocManaged");
  if (result == kSuccess) remember(deviceIndex, kManaged, size, *address);
  return result;
}

// Memory of another process is that process's to pay for: it is only watched, so that NVML does not charge it twice.
template <class Open>
Result import(const Address* address, Open open) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  const BeforeImport before = beforeImport(deviceIndex);
  Result result = open();
  if (result != kSuccess || deviceIndex < 0) return result;
  Allocation known{};
  if (imports.get(*address, &known)) {  // opened once more: it is there until it has been closed as often
    ++known.count;
    imports.put(*address, known);
    return result;
  }
  size_t size = 0;
  if (driver.memGetAddressRange == nullptr || driver.memGetAddressRange(nullptr, &size, *address) != kSuccess) size = 0;
  const uint64_t seen = afterImport(deviceIndex, before, size);
  if (seen != 0) imports.put(*address, Allocation{seen, 0, static_cast<int16_t>(deviceIndex), kIpc, 1});
  return result;
}

OOMTUNE_HOOK(cuIpcOpenMemHandle, Address* address, IpcMemHandle handle, unsigned int flags) {
  return import(address, [=] { return cuIpcOpenMemHandle_real(address, handle, flags); });
}

OOMTUNE_HOOK(cuIpcOpenMemHandle_v2, Address* address, IpcMemHandle handle, unsigned int flags) {
  return import(address, [=] { return cuIpcOpenMemHandle_v2_real(address, handle, flags); });
}

OOMTUNE_HOOK(cuIpcCloseMemHandle, Address address) {
  Allocation allocation{};
  const bool known = imports.take(address, &allocation);
  Result result = cuIpcCloseMemHandle_real(address);
  if (!known) return result;
  if (result == kSuccess) --allocation.count;
  if (allocation.count > 0) imports.put(address, allocation);
  else importGone(allocation.deviceIndex, allocation.size);
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemAlloc_v2),       OOMTUNE_HOOKED(cuMemAllocPitch_v2), OOMTUNE_HOOKED(cuMemAllocManaged),
    OOMTUNE_HOOKED(cuMemFree_v2),        OOMTUNE_HOOKED(cuIpcOpenMemHandle), OOMTUNE_HOOKED(cuIpcOpenMemHandle_v2),
    OOMTUNE_HOOKED(cuIpcCloseMemHandle),
};

}  // namespace

extern const HookList kLinearHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
