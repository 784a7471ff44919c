// Initialisation, devices and contexts.
#include <stdio.h>

#include "card.h"

using namespace fake;

namespace fake {

namespace {

std::map<uint64_t, int> contexts;
uint64_t primary[kDevices];
int primaryCount[kDevices];

uint64_t contextBytes() { return number("FAKE_CONTEXT", 100 << 20); }

Result createContext(int device, uint64_t* out) {
  if (device < 0 || device >= deviceCount()) return 101;
  if (!take(device, static_cast<int64_t>(contextBytes()))) return 2;
  *out = newName(1);
  contexts[*out] = device;
  return 0;
}

/** A primary context has the same handle each time, as with real drivers. */
Result createPrimary(int device) {
  const uint64_t handle = 0x5000ULL + static_cast<uint64_t>(device) * 16;
  if (!take(device, static_cast<int64_t>(contextBytes()))) return 2;
  contexts[primary[device] = handle] = device;
  return 0;
}

void destroyContext(uint64_t context) {
  forgetBlocks(context);
  forgetArrays(context);
  take(contexts[context], -static_cast<int64_t>(contextBytes()));
  contexts.erase(context);
  if (current == context) current = 0;
}

void destroyPrimary(int device) {
  destroyContext(primary[device]);
  forgetPools(device);
  primary[device] = 0;
}

}  // namespace

bool deviceOf(uint64_t context, int* device) {
  auto found = contexts.find(context);
  if (found == contexts.end()) return false;
  *device = found->second;
  return true;
}

bool currentDevice(int* device) { return deviceOf(current, device); }

size_t heap = 8 << 20;
constexpr uint64_t kGreen = 30 << 20;

}  // namespace fake

API cuInit(unsigned int) {
  FAULT("cuInit");
  return initialised = true, 0;
}
API cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API cuDeviceGetCount(int* count) { return initialised ? (*count = deviceCount(), 0) : 3; }
API cuDeviceGet(Device* device, int ordinal) {
  return ordinal >= 0 && ordinal < deviceCount() ? (*device = ordinal, 0) : 101;
}
API cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = 0xaa;
  // FAKE_SWAP: this process sees the devices in reverse, as CUDA_VISIBLE_DEVICES may have it.
  uuid->bytes[15] = static_cast<unsigned char>(number("FAKE_SWAP", 0) ? deviceCount() - 1 - device : device);
  return 0;
}
API cuDeviceGetPCIBusId(char* bus, int length, Device device) {
  snprintf(bus, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return 0;
}
API cuDeviceGetAttribute(int* value, int attribute, Device) {
  constexpr int kSparseArrays = 112;
  return *value = attribute == kSparseArrays ? 1 : 0, 0;
}
// What a part of a device is described by; all parts are alike here.
API cuDeviceGetDevResource(Device, void*, int) { return 0; }
API cuDevResourceGenerateDesc(void** description, void*, unsigned int) { return *description = nullptr, 0; }
API cuDeviceTotalMem_v2(size_t* bytes, Device) { return *bytes = state()->capacity, 0; }

API cuCtxCreate_v2(Context* context, unsigned int, Device device) {
  FAULT("cuCtxCreate_v2");
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t made = 0;
  Result result = createContext(device, &made);
  if (result == 0) *context = reinterpret_cast<Context>(current = made);
  return result;
}
API cuCtxCreate(Context* context, unsigned int flags, Device device) { return cuCtxCreate_v2(context, flags, device); }
API cuCtxCreate_v3(Context* context, void*, int, unsigned int flags, Device device) {
  return cuCtxCreate_v2(context, flags, device);
}
#ifndef FAKE_OLD
API cuCtxCreate_v4(Context* context, void*, unsigned int flags, Device device) {
  return cuCtxCreate_v2(context, flags, device);
}
#endif
API cuCtxDestroy_v2(Context context) {
  std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  if (!deviceOf(reinterpret_cast<uint64_t>(context), &device)) return 201;
  destroyContext(reinterpret_cast<uint64_t>(context));
  return 0;
}
API cuCtxDestroy(Context context) { return cuCtxDestroy_v2(context); }

API cuDeviceTotalMem(unsigned int* bytes, Device) { return *bytes = static_cast<unsigned int>(state()->capacity), 0; }
API cuGreenCtxCreate(GreenContext* context, void*, Device device, unsigned int) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!take(device, static_cast<int64_t>(kGreen))) return 2;
  *context = reinterpret_cast<GreenContext>(static_cast<uint64_t>(device) + 1);
  return 0;
}
API cuGreenCtxDestroy(GreenContext context) {
  std::lock_guard<std::mutex> lock(mutex);
  take(static_cast<int>(reinterpret_cast<uint64_t>(context) - 1), -static_cast<int64_t>(kGreen));
  return 0;
}
API cuCtxGetLimit(size_t* value, int limit) { return *value = limit == kLimitHeap ? heap : 0, 0; }
API cuCtxSetLimit(int limit, size_t value) {
  if (limit == kLimitHeap) heap = value;
  return 0;
}
API cuDevicePrimaryCtxRetain(Context* context, Device device) {
  FAULT("cuDevicePrimaryCtxRetain");
  std::lock_guard<std::mutex> lock(mutex);
  if (primary[device] == 0) {
    Result result = createPrimary(device);
    if (result != 0) return result;
  }
  ++primaryCount[device];
  *context = reinterpret_cast<Context>(primary[device]);
  return 0;
}
API cuDevicePrimaryCtxRelease_v2(Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  if (primaryCount[device] == 0) return 201;
  if (--primaryCount[device] == 0 && primary[device] != 0) destroyPrimary(device);
  return 0;
}
API cuDevicePrimaryCtxRelease(Device device) { return cuDevicePrimaryCtxRelease_v2(device); }
API cuDevicePrimaryCtxReset_v2(Device device) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (primary[device] != 0) destroyPrimary(device);
    primaryCount[device] = 0;
  }
  // FAKE_SLOW: time enough for another thread to be given what this one gave back.
  usleep(static_cast<useconds_t>(number("FAKE_SLOW", 0)));
  return 0;
}
API cuDevicePrimaryCtxReset(Device device) { return cuDevicePrimaryCtxReset_v2(device); }
API cuDevicePrimaryCtxGetState(Device device, unsigned int* flags, int* active) {
  std::lock_guard<std::mutex> lock(mutex);
  *flags = 0;
  *active = primary[device] != 0;
  return 0;
}

API cuCtxGetCurrent(Context* context) { return *context = reinterpret_cast<Context>(current), 0; }
API cuCtxSetCurrent(Context context) { return current = reinterpret_cast<uint64_t>(context), 0; }
API cuCtxPushCurrent_v2(Context context) { return current = reinterpret_cast<uint64_t>(context), 0; }
API cuCtxPopCurrent_v2(Context* context) { return *context = reinterpret_cast<Context>(current), 0; }
API cuCtxSynchronize() { return 0; }
API cuCtxGetDevice(Device* device) {
  std::lock_guard<std::mutex> lock(mutex);
  return currentDevice(device) ? 0 : 201;
}

API cuModuleLoadData(void** module, const void*) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device) || !take(device, static_cast<int64_t>(number("FAKE_MODULE", 0)))) return 2;
  *module = reinterpret_cast<void*>(newName(1));
  return 0;
}
