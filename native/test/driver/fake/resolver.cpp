// A driver of no device: the part of the driver API that deals in memory, over a pretended card. Built three times: as
// a driver of today, as one that lacks newer functions (FAKE_OLD), and as one from the future (FAKE_NEW). Here: its
// resolver, and what a trampoline must hand through.
//
// FAKE_STATE     file that plays the hardware (shared by processes)   FAKE_CAPACITY  bytes of each device
// FAKE_COUNT     number of devices (1)                                FAKE_CONTEXT   bytes that a context takes (100
// MiB) FAKE_FAIL      "cuMemAlloc_v2:3:719": the third call of that function answers 719 FAKE_MODULE    bytes that
// cuModuleLoadData takes, unseen by any hook FAKE_PIECES    idle memory of pools cannot be used again      FAKE_LAG
// milliseconds that NVML shows what was freed FAKE_POOL_STEP bytes by which pools grow (32 MiB)             FAKE_SLOW
// microseconds that a reset or release goes on
#include "card.h"

using namespace fake;

API cuDeviceGet(Device* device, int ordinal);
API cuDeviceGetCount(int* count);
API cuInit(unsigned int);
API cuCtxCreate_v2(Context*, unsigned int, Device);
API cuCtxCreate_v3(Context*, void*, int, unsigned int, Device);
API cuCtxCreate_v4(Context*, void*, unsigned int, Device);
API cuMemAlloc_v2(Address*, size_t);
API cuMemFree_v2(Address);
API cuMemGetInfo_v2(size_t*, size_t*);
API cuMemAllocAsync(Address*, size_t, Stream);
API cuMemAllocAsync_ptsz(Address*, size_t, Stream);
API cuMemFreeAsync(Address, Stream);
API cuMemFreeAsync_ptsz(Address, Stream);

// Twelve arguments, of which some are floating-point: what a trampoline must hand through unharmed.
API cuLaunchKernel(long a, double x, long b, double y, long c, double z, long d, long e, long f, long g, double w,
                   long h) {
  return a + b + c + d + e + f + g + h == 36 && x + y + z + w == 10.0 ? 0 : 1;
}

#ifdef FAKE_NEW
API cuMemAlloc_v9(Address* address, size_t size, int) { return cuMemAlloc_v2(address, size); }
API cuQuantumEntangle(int* value) { return *value = 42, 0; }
#endif

API cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status);
API cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

API cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version, uint64_t, int* status) {
  return cuGetProcAddress_v2(symbol, function, version, 2, status);
}

API cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  struct Entry {
    const char* name;
    int since;
    void* plain;
    void* perThread;
  };
#define ENTRY(base, since, name) {#base, since, reinterpret_cast<void*>(name), nullptr}
#define STREAM_ENTRY(base, since, name)                                               \
  {                                                                                   \
    #base, since, reinterpret_cast<void*>(name), reinterpret_cast<void*>(name##_ptsz) \
  }
  static const Entry entries[] = {
      ENTRY(cuInit, 2000, cuInit),
      ENTRY(cuDeviceGet, 2000, cuDeviceGet),
      ENTRY(cuDeviceGetCount, 2000, cuDeviceGetCount),
      ENTRY(cuCtxCreate, 3020, cuCtxCreate_v2),
      ENTRY(cuCtxCreate, 11040, cuCtxCreate_v3),
#ifndef FAKE_OLD
      ENTRY(cuCtxCreate, 12050, cuCtxCreate_v4),
#endif
      ENTRY(cuMemAlloc, 3020, cuMemAlloc_v2),
      ENTRY(cuMemFree, 3020, cuMemFree_v2),
      ENTRY(cuMemGetInfo, 3020, cuMemGetInfo_v2),
      STREAM_ENTRY(cuMemAllocAsync, 11020, cuMemAllocAsync),
      STREAM_ENTRY(cuMemFreeAsync, 11020, cuMemFreeAsync),
      ENTRY(cuGetProcAddress, 11030, cuGetProcAddress),
      ENTRY(cuGetProcAddress, 12000, cuGetProcAddress_v2),
#ifdef FAKE_NEW
      ENTRY(cuMemAlloc, 15000, cuMemAlloc_v9),
      ENTRY(cuQuantumEntangle, 15000, cuQuantumEntangle),
#endif
  };
  const Entry* best = nullptr;
  for (const Entry& entry : entries) {
    if (strcmp(entry.name, symbol) == 0 && entry.since <= version && (best == nullptr || entry.since > best->since)) {
      best = &entry;
    }
  }
  *function = nullptr;
  if (status != nullptr) *status = best != nullptr ? 0 : 1;
  if (best == nullptr) return 500;
  *function = flags == 2 && best->perThread != nullptr ? best->perThread : best->plain;
  return 0;
}
