// First versions of calls, with sizes and addresses of 32 bits, which drivers still have. A program that looks up a
// name without a version's suffix gets these.
#include "admission.h"
#include "allocation_tables.h"
#include "driver.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

/** Around the driver's own call: admit, call, settle, remember by the address that it gave. */
template <class Call>
Result make(uint64_t bytes, const char* api, const unsigned int* address, Call call) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  if (!account::admit(deviceIndex, bytes, api)) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = call();
  account::settle(deviceIndex, kClassic, bytes, result, api);
  if (result != kSuccess || deviceIndex < 0) return result;
  const Allocation made{bytes, currentContext(), static_cast<int16_t>(deviceIndex), kClassic, contextAge()};
  if (!linear.put(*address, made)) {
    account::release(deviceIndex, kClassic, bytes);
    account::markBlind(kBlindHook);
  }
  return result;
}

OOMTUNE_HOOK(cuMemAlloc, unsigned int* address, unsigned int size) {
  return make(account::physical(size), "cuMemAlloc", address, [=] { return cuMemAlloc_real(address, size); });
}

OOMTUNE_HOOK(cuMemAllocPitch, unsigned int* address, unsigned int* pitch, unsigned int width, unsigned int height,
             unsigned int element) {
  const uint64_t expected = account::physical(((width + 511ULL) & ~511ULL) * height);
  return make(expected, "cuMemAllocPitch", address,
              [=] { return cuMemAllocPitch_real(address, pitch, width, height, element); });
}

OOMTUNE_HOOK(cuMemFree, unsigned int address) {
  account::DriverCall driverCallUnderWay;
  Allocation allocation{};
  const bool ours = linear.take(address, &allocation);
  Result result = cuMemFree_real(address);
  if (ours && result == kSuccess) {
    account::release(allocation.deviceIndex, static_cast<Kind>(allocation.kind), allocation.size);
  }
  if (ours && result != kSuccess) linear.put(address, allocation);
  return result;
}

OOMTUNE_HOOK(cuMemAllocHost, void** at, unsigned int size) {
  Result result = cuMemAllocHost_real(at, size);
  if (result != kSuccess || at == nullptr || !account::gate().attached()) return result;
  const Allocation made{size, currentContext(), static_cast<int16_t>(kHostDevice), kHostPinned, contextAge()};
  if (pinned.put(reinterpret_cast<uint64_t>(*at), made)) account::add(kHostDevice, kHostPinned, size);
  return result;
}

unsigned int least(uint64_t left, unsigned int real) { return left < real ? static_cast<unsigned int>(left) : real; }

OOMTUNE_HOOK(cuMemGetInfo, unsigned int* free, unsigned int* total) {
  Result result = cuMemGetInfo_real(free, total);
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  if (result != kSuccess || deviceIndex < 0) return result;
  account::refresh(deviceIndex);
  if (free != nullptr) *free = least(account::available(deviceIndex), *free);
  if (total != nullptr) *total = least(account::gate().budget(deviceIndex), *total);
  return result;
}

OOMTUNE_HOOK(cuDeviceTotalMem, unsigned int* bytes, Device device) {
  Result result = cuDeviceTotalMem_real(bytes, device);
  const DeviceIndex deviceIndex = account::deviceIndexOf(device);
  if (result == kSuccess && bytes != nullptr && deviceIndex >= 0)
    *bytes = least(account::gate().budget(deviceIndex), *bytes);
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemAlloc),     OOMTUNE_HOOKED(cuMemAllocPitch), OOMTUNE_HOOKED(cuMemFree),
    OOMTUNE_HOOKED(cuMemAllocHost), OOMTUNE_HOOKED(cuMemGetInfo),    OOMTUNE_HOOKED(cuDeviceTotalMem),
};

}  // namespace

extern const HookList kFirstHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
