// Pinned host memory: counted by itself, never against a device's budget and never refused.
#include "account.h"
#include "allocation_tables.h"
#include "driver.h"

namespace oomtune::cuda {

namespace {

void count(Result result, void** at, size_t size) {
  if (result != kSuccess || at == nullptr || !account::gate().attached()) return;
  const Allocation allocation{size, currentContext(), static_cast<int16_t>(kHostDevice), kHostPinned, contextAge()};
  if (pinned.put(reinterpret_cast<uint64_t>(*at), allocation)) account::add(kHostDevice, kHostPinned, size);
}

OOMTUNE_HOOK(cuMemAllocHost_v2, void** at, size_t size) {
  Result result = cuMemAllocHost_v2_real(at, size);
  count(result, at, size);
  return result;
}

OOMTUNE_HOOK(cuMemHostAlloc, void** at, size_t size, unsigned int flags) {
  Result result = cuMemHostAlloc_real(at, size, flags);
  count(result, at, size);
  return result;
}

// Memory of the program's own, held in place from now on: the device can reach it, and the host cannot swap it out.
OOMTUNE_HOOK(cuMemHostRegister, void* at, size_t size, unsigned int flags) {
  Result result = cuMemHostRegister_real(at, size, flags);
  count(result, &at, size);
  return result;
}

OOMTUNE_HOOK(cuMemHostRegister_v2, void* at, size_t size, unsigned int flags) {
  Result result = cuMemHostRegister_v2_real(at, size, flags);
  count(result, &at, size);
  return result;
}

/** Before the driver's own call: another thread may be given the same address as soon as the driver has it back. */
Result release(void* at, Result (*real)(void*)) {
  Allocation allocation{};
  const bool ours = pinned.take(reinterpret_cast<uint64_t>(at), &allocation);
  Result result = real(at);
  if (ours && result == kSuccess) account::release(kHostDevice, kHostPinned, allocation.size);
  if (ours && result != kSuccess) pinned.put(reinterpret_cast<uint64_t>(at), allocation);
  return result;
}

OOMTUNE_HOOK(cuMemHostUnregister, void* at) { return release(at, cuMemHostUnregister_real); }

OOMTUNE_HOOK(cuMemFreeHost, void* at) { return release(at, cuMemFreeHost_real); }

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuMemAllocHost_v2), OOMTUNE_HOOKED(cuMemHostAlloc),       OOMTUNE_HOOKED(cuMemFreeHost),
    OOMTUNE_HOOKED(cuMemHostRegister), OOMTUNE_HOOKED(cuMemHostRegister_v2), OOMTUNE_HOOKED(cuMemHostUnregister),
};

}  // namespace

extern const HookList kHostHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
