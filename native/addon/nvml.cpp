#include "nvml.h"

#include <dlfcn.h>

#include <map>

namespace oomtune {

namespace {

using Handle = void*;
using Result = int;

enum : Result { kOk = 0, kNotSupported = 3, kNoPermission = 4, kInsufficientSize = 7, kGpuLost = 15, kResetRequired = 16 };

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct ProcessInfo {  // of the _v2 and _v3 calls
  unsigned int pid;
  unsigned long long used;
  unsigned int gpuInstance;
  unsigned int computeInstance;
};

struct FieldValue {
  unsigned int field;
  unsigned int scope;
  long long timestamp;
  long long latency;
  unsigned int valueType;
  Result result;
  union {
    double asDouble;
    unsigned int asUint;
    unsigned long long asUlonglong;
  } value;
};

constexpr unsigned int kRecoveryAction = 230;  // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, drivers from 12.6 on
constexpr unsigned int kUncorrected = 1;
constexpr unsigned int kSinceBoot = 0;
constexpr unsigned int kMigEnabled = 1;

class Library {
 public:
  Library() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (started_ && shutdown_ != nullptr) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool present() const { return library_ != nullptr; }

  template <typename... Arguments>
  Result call(const char* name, Arguments... arguments) {
    auto function = reinterpret_cast<Result (*)(Arguments...)>(find(name));
    return function != nullptr ? function(arguments...) : kNotSupported;
  }

  bool has(const char* name) { return find(name) != nullptr; }

  Result start() {
    shutdown_ = reinterpret_cast<Result (*)()>(find("nvmlShutdown"));
    const Result result = call("nvmlInit_v2");
    started_ = result == kOk;
    return result;
  }

  std::string text(Result result) {
    auto function = reinterpret_cast<const char* (*)(Result)>(find("nvmlErrorString"));
    return function != nullptr ? function(result) : "NVML error " + std::to_string(result);
  }

 private:
  void* find(const char* name) {
    auto known = symbols_.find(name);
    if (known == symbols_.end()) known = symbols_.emplace(name, dlsym(library_, name)).first;
    return known->second;
  }

  void* library_;
  bool started_ = false;
  Result (*shutdown_)() = nullptr;
  std::map<std::string, void*> symbols_;
};

std::string processName(Library& nvml, unsigned int pid) {
  char name[256] = {};
  if (nvml.call("nvmlSystemGetProcessName", pid, name, static_cast<unsigned int>(sizeof name - 1)) != kOk) return "";
  return name;
}

/** False: NVML does not list the processes here. */
bool listProcesses(Library& nvml, Handle device, const char* newer, const char* older, std::vector<GpuProcess>* out) {
  const char* name = nvml.has(newer) ? newer : older;
  std::vector<ProcessInfo> infos(64);
  unsigned int count = 0;
  Result result = kInsufficientSize;
  for (int attempt = 0; attempt < 4 && result == kInsufficientSize; ++attempt) {
    count = static_cast<unsigned int>(infos.size());
    result = nvml.call(name, device, &count, infos.data());
    if (result == kInsufficientSize) infos.resize(infos.size() * 4);
  }
  if (result != kOk) return false;
  for (unsigned int i = 0; i < count && i < infos.size(); ++i) {
    const bool known = infos[i].used != ~0ULL;
    bool listed = false;
    for (GpuProcess& process : *out) listed = listed || process.pid == infos[i].pid;  // computes and draws
    if (!listed) out->push_back({infos[i].pid, processName(nvml, infos[i].pid), known ? infos[i].used : 0, known});
  }
  return true;
}

/**
 * A state in which errors are the GPU's own fault, not the job's. Newer drivers say what is to be done about it (after
 * an Xid too); where they do not, uncorrected errors are taken for a fault until the driver is loaded anew.
 */
std::string faultOf(Library& nvml, Handle device) {
  unsigned int corrected = 0;
  unsigned int uncorrected = 0;
  unsigned int pending = 0;
  unsigned int failed = 0;
  if (nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending, &failed) == kOk && failed != 0) {
    return "a row of memory could not be remapped";
  }
  FieldValue recovery{};
  recovery.field = kRecoveryAction;
  if (nvml.call("nvmlDeviceGetFieldValues", device, 1, &recovery) == kOk && recovery.result == kOk) {
    switch (recovery.value.asUint) {
      case 1: return "the driver asks for a reset of the GPU";
      case 2: return "the driver asks for a reboot of the machine";
      case 3: return "the driver asks that peer-to-peer work be ended";
      case 4: return "the driver asks that the GPU be drained and reset";
      default: return "";
    }
  }
  unsigned long long errors = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceBoot, &errors) == kOk && errors > 0) {
    return std::to_string(errors) + " uncorrected ECC errors since the driver was loaded";
  }
  return "";
}

std::string brokenState(Library& nvml, Result result) {
  if (result == kGpuLost) return "the GPU has fallen off the bus";
  if (result == kResetRequired) return "the GPU must be reset";
  return "NVML: " + nvml.text(result);
}

void describe(Library& nvml, Handle device, Gpu* gpu) {
  char text[96] = {};
  Result result = nvml.call("nvmlDeviceGetUUID", device, text, static_cast<unsigned int>(sizeof text - 1));
  if (result == kOk) gpu->uuid = text;
  char model[96] = {};
  if (nvml.call("nvmlDeviceGetName", device, model, static_cast<unsigned int>(sizeof model - 1)) == kOk) gpu->model = model;
  Memory memory{};
  result = nvml.call("nvmlDeviceGetMemoryInfo", device, &memory);
  if (result != kOk) {
    gpu->fault = brokenState(nvml, result);
    return;
  }
  gpu->total = memory.total;
  gpu->used = memory.used;
  gpu->processesTold = listProcesses(nvml, device, "nvmlDeviceGetComputeRunningProcesses_v3",
                                     "nvmlDeviceGetComputeRunningProcesses_v2", &gpu->processes);
  listProcesses(nvml, device, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
                &gpu->processes);
  if (gpu->mig < 0) gpu->fault = faultOf(nvml, device);
}

/** The MIG devices of a GPU that is divided; they, not the GPU, are what a job can use. */
std::vector<Gpu> migDevices(Library& nvml, Handle device, const Gpu& whole) {
  std::vector<Gpu> found;
  unsigned int current = 0;
  unsigned int pending = 0;
  if (nvml.call("nvmlDeviceGetMigMode", device, &current, &pending) != kOk || current != kMigEnabled) return found;
  unsigned int count = 0;
  if (nvml.call("nvmlDeviceGetMaxMigDeviceCount", device, &count) != kOk) return found;
  for (unsigned int i = 0; i < count && i < 64; ++i) {
    Handle part = nullptr;
    if (nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, &part) != kOk) continue;
    Gpu gpu;
    gpu.index = whole.index;
    gpu.mig = static_cast<int32_t>(i);
    gpu.parent = whole.uuid;
    describe(nvml, part, &gpu);
    if (gpu.fault.empty()) gpu.fault = whole.fault;
    found.push_back(std::move(gpu));
  }
  return found;
}

}  // namespace

GpuInventory askNvml() {
  GpuInventory inventory;
  Library nvml;
  if (!nvml.present()) return inventory;
  const Result started = nvml.start();
  if (started != kOk) {
    inventory.error = nvml.text(started);
    return inventory;
  }
  inventory.found = true;
  char driver[96] = {};
  if (nvml.call("nvmlSystemGetDriverVersion", driver, static_cast<unsigned int>(sizeof driver - 1)) == kOk) {
    inventory.driver = driver;
  }
  unsigned int count = 0;
  if (nvml.call("nvmlDeviceGetCount_v2", &count) != kOk) return inventory;
  for (unsigned int i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.index = i;
    Handle device = nullptr;
    const Result result = nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device);
    if (result == kNoPermission) continue;  // kept from us on purpose, as in a container
    if (result != kOk) {
      gpu.fault = brokenState(nvml, result);
      inventory.gpus.push_back(std::move(gpu));
      continue;
    }
    describe(nvml, device, &gpu);
    std::vector<Gpu> parts = migDevices(nvml, device, gpu);
    if (parts.empty()) {
      inventory.gpus.push_back(std::move(gpu));
    } else {
      for (Gpu& part : parts) inventory.gpus.push_back(std::move(part));
    }
  }
  return inventory;
}

}  // namespace oomtune
