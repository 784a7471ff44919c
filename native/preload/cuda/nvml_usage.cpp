#include "nvml_usage.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "compat.h"
#include "driver_calls.h"
#include "hash_table.h"
#include "real_library.h"

namespace oomtune::cuda {

namespace {

constexpr int kNvmlSuccess = 0;
constexpr char kNvmlName[] = "libnvidia-ml.so.1";
constexpr uint64_t kNvmlNotAvailable = UINT64_MAX;

// nvmlProcessInfo_v2_t, which the _v2 and _v3 calls fill.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
};

struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Nvml {
  int (*init)();
  int (*byPciBusId)(const char*, NvmlDevice*);
  int (*byUuid)(const char*, NvmlDevice*);
  int (*computeProcesses)(NvmlDevice, unsigned int*, ProcessInfo*);
  int (*graphicsProcesses)(NvmlDevice, unsigned int*, ProcessInfo*);
  int (*memoryInfo)(NvmlDevice, MemoryInfo*);
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Nvml nvml;
void* library;
bool tried;
bool started;

template <class Function>
void find(Function* out, const char* name, const char* older) {
  void* at = dlsym(library, name);
  if (at == nullptr && older != nullptr) at = dlsym(library, older);
  *out = reinterpret_cast<Function>(at);
}

/**
 * The loader resolves a name to the library that was loaded first under it: the stand-in for NVML must be loaded before
 * the real one, or the program would get the real one.
 */
void openStandInFirst() {
  Dl_info self{};
  char path[4096];
  if (dladdr(reinterpret_cast<void*>(openStandInFirst), &self) == 0 || self.dli_fname == nullptr) return;
  const char* slash = strrchr(self.dli_fname, '/');
  const size_t length = slash != nullptr ? static_cast<size_t>(slash - self.dli_fname) + 1 : 0;
  if (length == 0 || length + sizeof kNvmlName > sizeof path) return;
  memcpy(path, self.dli_fname, length);
  memcpy(path + length, kNvmlName, sizeof kNvmlName);
  dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

bool start() {
  if (started) return true;
  if (library == nullptr && !tried) {
    openStandInFirst();
    char path[4096];
    library = openReal("OOMTUNE_NVML_DRIVER", kNvmlName, driverPath, path, sizeof path);
    if (library != nullptr) {
      find(&nvml.init, "nvmlInit_v2", nullptr);
      find(&nvml.byPciBusId, "nvmlDeviceGetHandleByPciBusId_v2", nullptr);
      find(&nvml.byUuid, "nvmlDeviceGetHandleByUUID", nullptr);
      find(&nvml.computeProcesses, "nvmlDeviceGetComputeRunningProcesses_v3",
           "nvmlDeviceGetComputeRunningProcesses_v2");
      find(&nvml.graphicsProcesses, "nvmlDeviceGetGraphicsRunningProcesses_v3",
           "nvmlDeviceGetGraphicsRunningProcesses_v2");
      find(&nvml.memoryInfo, "nvmlDeviceGetMemoryInfo", nullptr);
    }
  }
  if (!tried && library != nullptr && nvml.init != nullptr && nvml.byPciBusId != nullptr) {
    started = nvml.init() == kNvmlSuccess;
  }
  tried = true;
  return started;
}

Lookup sum(int (*list)(NvmlDevice, unsigned int*, ProcessInfo*), NvmlDevice device, uint32_t pid, uint64_t* bytes) {
  if (list == nullptr) return Lookup::kUnknown;
  ProcessInfo few[64];
  unsigned int count = 64;
  if (list(device, &count, few) != kNvmlSuccess) return Lookup::kUnknown;  // so too with more than 64 processes
  Lookup figure = Lookup::kAbsent;
  for (unsigned int i = 0; i < count; ++i) {
    if (few[i].pid != pid || few[i].usedGpuMemory == kNvmlNotAvailable) continue;
    *bytes += few[i].usedGpuMemory;
    figure = Lookup::kFound;
  }
  return figure;
}

}  // namespace

NvmlDevice nvmlDevice(const char* pciBusId, const char* migUuid) {
  Lock lock(mutex);
  NvmlDevice device = nullptr;
  if (!start()) return nullptr;
  if (migUuid != nullptr && nvml.byUuid != nullptr && nvml.byUuid(migUuid, &device) == kNvmlSuccess) return device;
  return nvml.byPciBusId(pciBusId, &device) == kNvmlSuccess ? device : nullptr;
}

Lookup nvmlProcessBytes(NvmlDevice device, uint32_t pid, uint64_t* bytes) {
  Lock lock(mutex);
  *bytes = 0;
  if (device == nullptr || !start()) return Lookup::kUnknown;
  // A process that also does graphics is in both lists with the same figure.
  Lookup figure = sum(nvml.computeProcesses, device, pid, bytes);
  if (figure != Lookup::kFound && sum(nvml.graphicsProcesses, device, pid, bytes) == Lookup::kFound) {
    figure = Lookup::kFound;
  }
  return figure;
}

bool nvmlDeviceBytes(NvmlDevice device, uint64_t* used) {
  Lock lock(mutex);
  MemoryInfo info{};
  if (device == nullptr || !start() || nvml.memoryInfo == nullptr) return false;
  if (nvml.memoryInfo(device, &info) != kNvmlSuccess) return false;
  *used = info.used;
  return true;
}

}  // namespace oomtune::cuda
