// Initialisation, contexts, the resolver, and the figures that a program reads to size itself.
#include <atomic>

#include "admission.h"
#include "allocation_tables.h"
#include "device_watch.h"
#include "driver.h"
#include "known_pools.h"
#include "overhead.h"
#include "process_lifetime.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

OOMTUNE_HOOK(cuInit, unsigned int flags) {
  Result result = cuInit_real(flags);
  if (result == kSuccess) account::begin();
  return result;
}

OOMTUNE_HOOK(cuGetProcAddress, const char* symbol, void** function, int version, uint64_t flags) {
  Result result = cuGetProcAddress_real(symbol, function, version, flags);
  if (result == kSuccess && function != nullptr && *function != nullptr) *function = substitute(symbol, *function);
  return result;
}

OOMTUNE_HOOK(cuGetProcAddress_v2, const char* symbol, void** function, int version, uint64_t flags, int* status) {
  Result result = cuGetProcAddress_v2_real(symbol, function, version, flags, status);
  if (result == kSuccess && function != nullptr && *function != nullptr) *function = substitute(symbol, *function);
  return result;
}

// What a program asks that was compiled for one default stream a thread.
OOMTUNE_HOOK(cuGetProcAddress_v2_ptsz, const char* symbol, void** function, int version, uint64_t flags, int* status) {
  Result result = cuGetProcAddress_v2_ptsz_real(symbol, function, version, flags, status);
  if (result == kSuccess && function != nullptr && *function != nullptr) *function = substitute(symbol, *function);
  return result;
}

/** A context that does not fit would not have come to be on a card as large as the budget. */
bool contextFits(DeviceIndex deviceIndex, const char* api) {
  measureContext(deviceIndex);
  if (!account::overBudget(deviceIndex)) return true;
  account::refused(deviceIndex, account::gate().overhead(deviceIndex), api, kByBudget);
  return false;
}

/** The driver refused a context for lack of memory, whose size is unknown. */
Result sayIfRefused(Result result, DeviceIndex deviceIndex, const char* api) {
  if (result == kOutOfMemory) account::refused(deviceIndex, 0, api, kByDriver);
  return result;
}

Result withinBudget(Result result, Context* context, Device device, const char* api) {
  DeviceIndex deviceIndex = account::deviceIndexOf(device);
  if (result != kSuccess) return sayIfRefused(result, deviceIndex, api);
  if (deviceIndex < 0 || contextFits(deviceIndex, api)) return result;
  if (driver.ctxDestroy != nullptr && context != nullptr) driver.ctxDestroy(*context);
  account::measure(deviceIndex);
  return kOutOfMemory;
}

OOMTUNE_HOOK(cuCtxCreate, Context* context, unsigned int flags, Device device) {
  beforeContext(account::deviceIndexOf(device));
  return withinBudget(cuCtxCreate_real(context, flags, device), context, device, "cuCtxCreate");
}

OOMTUNE_HOOK(cuCtxCreate_v2, Context* context, unsigned int flags, Device device) {
  beforeContext(account::deviceIndexOf(device));
  return withinBudget(cuCtxCreate_v2_real(context, flags, device), context, device, "cuCtxCreate_v2");
}

OOMTUNE_HOOK(cuCtxCreate_v3, Context* context, void* affinity, int count, unsigned int flags, Device device) {
  beforeContext(account::deviceIndexOf(device));
  return withinBudget(cuCtxCreate_v3_real(context, affinity, count, flags, device), context, device, "cuCtxCreate_v3");
}

OOMTUNE_HOOK(cuCtxCreate_v4, Context* context, void* params, unsigned int flags, Device device) {
  beforeContext(account::deviceIndexOf(device));
  return withinBudget(cuCtxCreate_v4_real(context, params, flags, device), context, device, "cuCtxCreate_v4");
}

bool primaryActive(Device device) {
  unsigned int flags = 0;
  int active = 1;
  return driver.primaryCtxGetState == nullptr || driver.primaryCtxGetState(device, &flags, &active) != kSuccess ||
         active != 0;
}

/** The primary contexts' handles, to know what is freed with one that is reset. */
std::atomic<uint64_t> primaries[kDevices];

OOMTUNE_HOOK(cuDevicePrimaryCtxRetain, Context* context, Device device) {
  DeviceIndex deviceIndex = account::deviceIndexOf(device);
  const bool first = deviceIndex >= 0 && !primaryActive(device);
  if (first) beforeContext(deviceIndex);
  Result result = cuDevicePrimaryCtxRetain_real(context, device);
  if (result != kSuccess) return sayIfRefused(result, deviceIndex, "cuDevicePrimaryCtxRetain");
  if (deviceIndex < 0) return result;
  if (context != nullptr) primaries[deviceIndex].store(reinterpret_cast<uint64_t>(*context));
  if (!first || contextFits(deviceIndex, "cuDevicePrimaryCtxRetain")) return result;
  if (driver.primaryCtxRelease != nullptr) driver.primaryCtxRelease(device);
  account::measure(deviceIndex);
  return kOutOfMemory;
}

enum class End { kReset, kRelease };

/** Calls what may end a primary context, and forgets what went with it. */
Result endPrimary(Result (*real)(Device), Device device, End how) {
  const DeviceIndex deviceIndex = account::deviceIndexOf(device);
  const bool active = primaryActive(device);
  const uint64_t context = deviceIndex >= 0 ? primaries[deviceIndex].load() : 0;
  Result result = kSuccess;
  bool gone = false;
  {
    account::DriverCall driverCallUnderWay;
    const uint32_t age = endContext();
    result = real(device);
    // After a reset another thread may have made it anew by now; all the same what was in it is gone.
    gone = result == kSuccess && deviceIndex >= 0 && (how == End::kReset ? active : !primaryActive(device));
    if (gone) {
      releaseContext(context, age);
      forgetPoolsOn(deviceIndex);
    }
  }
  if (gone) account::measure(deviceIndex);
  return result;
}

OOMTUNE_HOOK(cuDevicePrimaryCtxRelease, Device device) {
  return endPrimary(cuDevicePrimaryCtxRelease_real, device, End::kRelease);
}

OOMTUNE_HOOK(cuDevicePrimaryCtxRelease_v2, Device device) {
  return endPrimary(cuDevicePrimaryCtxRelease_v2_real, device, End::kRelease);
}

OOMTUNE_HOOK(cuDevicePrimaryCtxReset, Device device) {
  return endPrimary(cuDevicePrimaryCtxReset_real, device, End::kReset);
}

OOMTUNE_HOOK(cuDevicePrimaryCtxReset_v2, Device device) {
  return endPrimary(cuDevicePrimaryCtxReset_v2_real, device, End::kReset);
}

Result destroyContext(Result (*real)(Context), Context context) {
  Result result = kSuccess;
  {
    account::DriverCall driverCallUnderWay;
    const uint32_t age = endContext();
    result = real(context);
    if (result == kSuccess) releaseContext(reinterpret_cast<uint64_t>(context), age);
  }
  for (DeviceIndex deviceIndex = 1; result == kSuccess && deviceIndex < static_cast<DeviceIndex>(kDevices);
       ++deviceIndex) {
    if (account::gate().overhead(deviceIndex) != 0) account::measure(deviceIndex);
  }
  return result;
}

OOMTUNE_HOOK(cuCtxDestroy, Context context) { return destroyContext(cuCtxDestroy_real, context); }

OOMTUNE_HOOK(cuCtxDestroy_v2, Context context) { return destroyContext(cuCtxDestroy_v2_real, context); }

/** A part of a device with a context of its own; what is allocated in it belongs to the primary context. */
OOMTUNE_HOOK(cuGreenCtxCreate, GreenContext* context, void* resources, Device device, unsigned int flags);

OOMTUNE_HOOK(cuGreenCtxDestroy, GreenContext context) {
  Result result = cuGreenCtxDestroy_real(context);
  for (DeviceIndex deviceIndex = 1; result == kSuccess && deviceIndex < static_cast<DeviceIndex>(kDevices);
       ++deviceIndex) {
    if (account::gate().overhead(deviceIndex) != 0) account::measure(deviceIndex);
  }
  return result;
}

Result cuGreenCtxCreate_hook(GreenContext* context, void* resources, Device device, unsigned int flags) {
  const DeviceIndex deviceIndex = account::deviceIndexOf(device);
  beforeContext(deviceIndex);
  const Result result = cuGreenCtxCreate_real(context, resources, device, flags);
  if (result != kSuccess) return sayIfRefused(result, deviceIndex, "cuGreenCtxCreate");
  if (deviceIndex < 0 || contextFits(deviceIndex, "cuGreenCtxCreate")) return result;
  if (context != nullptr && cuGreenCtxDestroy_real != nullptr) cuGreenCtxDestroy_real(*context);
  account::measure(deviceIndex);
  return kOutOfMemory;
}

/** The heap of kernels is taken when the first that needs it is loaded: too late to refuse it there. */
OOMTUNE_HOOK(cuCtxSetLimit, int limit, size_t value) {
  size_t held = 0;
  const bool grows = limit == kLimitHeap && driver.ctxGetLimit != nullptr &&
                     driver.ctxGetLimit(&held, limit) == kSuccess && value > held;
  if (grows) {
    const DeviceIndex deviceIndex = account::currentDeviceIndex();
    if (!account::admit(deviceIndex, value - held, "cuCtxSetLimit")) return kOutOfMemory;
    if (deviceIndex >= 0) account::gate().cancel(deviceIndex, value - held);
  }
  return cuCtxSetLimit_real(limit, value);
}

OOMTUNE_HOOK(cuMemGetInfo_v2, size_t* free, size_t* total) {
  size_t realFree = 0;
  size_t realTotal = 0;
  Result result = cuMemGetInfo_v2_real(&realFree, &realTotal);
  if (result == kSuccess) {
    DeviceIndex deviceIndex = account::currentDeviceIndex();
    account::refresh(deviceIndex);
    const uint64_t left = account::available(deviceIndex);
    const uint64_t budget = deviceIndex >= 0 ? account::gate().budget(deviceIndex) : kNoBudget;
    if (left < realFree) realFree = left;
    if (budget < realTotal) realTotal = budget;
    if (free != nullptr) *free = realFree;
    if (total != nullptr) *total = realTotal;
  }
  return result;
}

OOMTUNE_HOOK(cuDeviceTotalMem_v2, size_t* bytes, Device device) {
  Result result = cuDeviceTotalMem_v2_real(bytes, device);
  DeviceIndex deviceIndex = account::deviceIndexOf(device);
  if (result == kSuccess && bytes != nullptr && deviceIndex >= 0) {
    const uint64_t budget = account::gate().budget(deviceIndex);
    if (budget < *bytes) *bytes = budget;
  }
  return result;
}

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuInit),
    OOMTUNE_HOOKED(cuGetProcAddress),
    OOMTUNE_HOOKED(cuGetProcAddress_v2),
    OOMTUNE_HOOKED(cuGetProcAddress_v2_ptsz),
    OOMTUNE_HOOKED(cuCtxCreate),
    OOMTUNE_HOOKED(cuCtxCreate_v2),
    OOMTUNE_HOOKED(cuCtxCreate_v3),
    OOMTUNE_HOOKED(cuCtxCreate_v4),
    OOMTUNE_HOOKED(cuDevicePrimaryCtxRetain),
    OOMTUNE_HOOKED(cuDevicePrimaryCtxRelease),
    OOMTUNE_HOOKED(cuDevicePrimaryCtxRelease_v2),
    OOMTUNE_HOOKED(cuDevicePrimaryCtxReset),
    OOMTUNE_HOOKED(cuDevicePrimaryCtxReset_v2),
    OOMTUNE_HOOKED(cuCtxDestroy),
    OOMTUNE_HOOKED(cuCtxDestroy_v2),
    OOMTUNE_HOOKED(cuGreenCtxCreate),
    OOMTUNE_HOOKED(cuGreenCtxDestroy),
    OOMTUNE_HOOKED(cuCtxSetLimit),
    OOMTUNE_HOOKED(cuMemGetInfo_v2),
    OOMTUNE_HOOKED(cuDeviceTotalMem_v2),
};

}  // namespace

extern const HookList kContextHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
