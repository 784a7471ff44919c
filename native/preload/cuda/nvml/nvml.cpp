// The stand-in for NVML: everything goes to the real library, but the memory of a device that has a budget looks as
// large as the budget, and as full as what the launch holds. It stands in the same folder as the stand-in for libcuda.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "compat.h"
#include "file.h"
#include "hash_table.h"
#include "ledger.h"
#include "real_library.h"
#include "trampolines.h"

asm(OOMTUNE_TRAMPOLINES_BEGIN
#define SYMBOL(name) OOMTUNE_TRAMPOLINE(name)
#include "nvml/symbols.def"
#undef SYMBOL
        OOMTUNE_TRAMPOLINES_END);

extern "C" __attribute__((visibility("default"))) const char oomtune_standin[] = "libnvidia-ml.so.1";

namespace oomtune::cuda {

namespace {

using NvmlDevice = struct NvmlDeviceOpaque*;

constexpr int kSuccess = 0;
constexpr int kFunctionNotFound = 13;
constexpr int kLibraryNotFound = 12;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryV2 {
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

int (*realMemory)(NvmlDevice, Memory*);
int (*realMemoryV2)(NvmlDevice, MemoryV2*);
int (*realUuid)(NvmlDevice, char*, unsigned int);
int (*realIndex)(NvmlDevice, unsigned int*);

pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
std::atomic<bool> opened{false};
const Ledger* ledger;

bool isUuid(const char* text) { return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0; }

/** The CUDA ordinal of a device in this process, from CUDA_VISIBLE_DEVICES; -1: hidden. */
int ordinalOf(unsigned int index, const char* uuid) {
  const char* at = getenv("CUDA_VISIBLE_DEVICES");
  if (at == nullptr) return static_cast<int>(index);
  for (int ordinal = 0; *at != '\0'; ++ordinal) {
    const size_t length = strcspn(at, ",");
    // An abbreviated uuid is allowed there.
    if (isUuid(at) ? strncmp(at, uuid, length) == 0 : strtoul(at, nullptr, 10) == index && length > 0) return ordinal;
    at += length;
    if (*at == ',') ++at;
  }
  return -1;
}

/** The ledger's entry of a device; null: it has none here. */
const DeviceEntry* entryOf(NvmlDevice device) {
  char uuid[96] = "";
  if (ledger == nullptr || realUuid == nullptr || realUuid(device, uuid, sizeof uuid) != kSuccess) return nullptr;
  bool uuids = false;
  for (uint32_t d = 1; d < kDevices; ++d) {
    const DeviceEntry& entry = ledger->devices[d];
    if (entry.present.load() != 1) continue;
    uuids = uuids || entry.uuid[0] != '\0';
    if (strncmp(entry.uuid, uuid, sizeof entry.uuid) == 0) return &entry;
  }
  unsigned int index = 0;
  if (uuids || realIndex == nullptr || realIndex(device, &index) != kSuccess) return nullptr;
  const int ordinal = ordinalOf(index, uuid);
  if (ordinal < 0 || ordinal + 1 >= static_cast<int>(kDevices)) return nullptr;
  const DeviceEntry& entry = ledger->devices[ordinal + 1];
  return entry.present.load() == 1 ? &entry : nullptr;
}

// What the driver keeps for itself is not part of the budget, and total = reserved + used + free.
void withoutReserve(Memory*) {}
void withoutReserve(MemoryV2* info) { info->reserved = 0; }

template <class Info>
int clamp(NvmlDevice device, Info* info, int result) {
  const DeviceEntry* entry = result == kSuccess && info != nullptr ? entryOf(device) : nullptr;
  if (entry == nullptr) return result;
  const uint64_t budget = entry->budget.load();
  if (budget >= info->total) return result;
  const uint64_t committed = entry->committed.load();
  const uint64_t left = committed < budget ? budget - committed : 0;
  info->total = budget;
  info->free = left < info->free ? left : info->free;
  info->used = budget - info->free;
  withoutReserve(info);
  return result;
}

int memoryHook(NvmlDevice device, Memory* info) { return clamp(device, info, realMemory(device, info)); }

int memoryV2Hook(NvmlDevice device, MemoryV2* info) { return clamp(device, info, realMemoryV2(device, info)); }

int missing() { return kFunctionNotFound; }
int noLibrary() { return kLibraryNotFound; }

void open() {
  Lock lock(opening);
  if (opened.load()) return;
  char path[4096];
  const char* driver = getenv("OOMTUNE_CUDA_DRIVER");
  void* handle = openReal("OOMTUNE_NVML_DRIVER", "libnvidia-ml.so.1", driver, path, sizeof path);
  static const char* const names[] = {
#define SYMBOL(name) #name,
#include "nvml/symbols.def"
#undef SYMBOL
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    void* real = handle != nullptr ? dlsym(handle, names[i]) : nullptr;
    void* target = real;
    if (real == nullptr) target = reinterpret_cast<void*>(handle != nullptr ? missing : noLibrary);
    if (real != nullptr && strcmp(names[i], "nvmlDeviceGetMemoryInfo") == 0) {
      realMemory = reinterpret_cast<decltype(realMemory)>(real);
      target = reinterpret_cast<void*>(memoryHook);
    }
    if (real != nullptr && strcmp(names[i], "nvmlDeviceGetMemoryInfo_v2") == 0) {
      realMemoryV2 = reinterpret_cast<decltype(realMemoryV2)>(real);
      target = reinterpret_cast<void*>(memoryV2Hook);
    }
    if (strcmp(names[i], "nvmlDeviceGetUUID") == 0) realUuid = reinterpret_cast<decltype(realUuid)>(real);
    if (strcmp(names[i], "nvmlDeviceGetIndex") == 0) realIndex = reinterpret_cast<decltype(realIndex)>(real);
    __atomic_store_n(&oomtune_slots[i], target, __ATOMIC_RELEASE);
  }
  const char* at = getenv("OOMTUNE_LEDGER");
  if (at != nullptr && at[0] != '\0') ledger = mapLedger(at, false);
  opened.store(true);
}

}  // namespace

}  // namespace oomtune::cuda

void* oomtune_resolve(void** slot) {
  oomtune::cuda::open();
  return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}
