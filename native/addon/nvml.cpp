#include "nvml.h"

#include <cstdio>

#include "nvml_library.h"

namespace oomtune {

namespace {

using namespace nvml;

std::string processName(Library& library, unsigned int pid) {
  char name[256] = {};
  if (library.call("nvmlSystemGetProcessName", pid, name, static_cast<unsigned int>(sizeof name - 1)) != kOk) return "";
  return name;
}

/** False: NVML does not list the processes here. */
bool listProcesses(Library& library, Handle device, const char* newer, const char* older,
                   std::vector<GpuProcess>* out) {
  const char* name = library.has(newer) ? newer : older;
  std::vector<ProcessInfo> infos(64);
  unsigned int count = 0;
  Result result = kInsufficientSize;
  for (int attempt = 0; attempt < 4 && result == kInsufficientSize; ++attempt) {
    count = static_cast<unsigned int>(infos.size());
    result = library.call(name, device, &count, infos.data());
    if (result == kInsufficientSize) infos.resize(infos.size() * 4);
  }
  if (result != kOk) return false;
  for (unsigned int i = 0; i < count && i < infos.size(); ++i) {
    const bool known = infos[i].used != ~0ULL;
    bool listed = false;
    for (GpuProcess& process : *out) listed = listed || process.pid == infos[i].pid;  // computes and draws
    if (!listed) out->push_back({infos[i].pid, processName(library, infos[i].pid), known ? infos[i].used : 0, known});
  }
  return true;
}

/**
 * A state in which errors are the GPU's own fault, not the job's. Newer drivers say what is to be done about it (after
 * an Xid too); where they do not, uncorrected errors are taken for a fault until the driver is loaded anew.
 */
std::string faultOf(Library& library, Handle device) {
  unsigned int corrected = 0;
  unsigned int uncorrected = 0;
  unsigned int pending = 0;
  unsigned int failed = 0;
  if (library.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending, &failed) == kOk &&
      failed != 0) {
    return "a row of memory could not be remapped";
  }
  FieldValue recovery{};
  recovery.field = kRecoveryAction;
  if (library.call("nvmlDeviceGetFieldValues", device, 1, &recovery) == kOk && recovery.result == kOk) {
    switch (recovery.value.asUint) {
      case 1: return "the driver asks for a reset of the GPU";
      case 2: return "the driver asks for a reboot of the machine";
      case 3: return "the driver asks that peer-to-peer work be ended";
      case 4: return "the driver asks that the GPU be drained and reset";
      default: return "";
    }
  }
  unsigned long long errors = 0;
  if (library.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceBoot, &errors) == kOk && errors > 0) {
    return std::to_string(errors) + " uncorrected ECC errors since the driver was loaded";
  }
  return "";
}

std::string brokenState(Library& library, Result result) {
  if (result == kGpuLost) return "the GPU has fallen off the bus";
  if (result == kResetRequired) return "the GPU must be reset";
  return "NVML: " + library.text(result);
}

std::string busOf(Library& library, Handle device) {
  PciInfo info{};
  if (library.call("nvmlDeviceGetPciInfo_v3", device, &info) != kOk) return "";
  char text[24] = {};
  snprintf(text, sizeof text, "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
  return text;
}

void observe(Library& library, Handle device, Gpu* gpu) {
  Utilization utilization{};
  if (library.call("nvmlDeviceGetUtilizationRates", device, &utilization) == kOk)
    gpu->utilisation = static_cast<int32_t>(utilization.gpu);
  unsigned int figure = 0;
  if (library.call("nvmlDeviceGetTemperature", device, kCore, &figure) == kOk)
    gpu->temperature = static_cast<int32_t>(figure);
  if (library.call("nvmlDeviceGetPowerUsage", device, &figure) == kOk) gpu->power = figure;
}

void describe(Library& library, Handle device, Gpu* gpu) {
  char text[96] = {};
  Result result = library.call("nvmlDeviceGetUUID", device, text, static_cast<unsigned int>(sizeof text - 1));
  if (result == kOk) gpu->uuid = text;
  char model[96] = {};
  if (library.call("nvmlDeviceGetName", device, model, static_cast<unsigned int>(sizeof model - 1)) == kOk)
    gpu->model = model;
  Memory memory{};
  result = library.call("nvmlDeviceGetMemoryInfo", device, &memory);
  if (result != kOk) {
    gpu->fault = brokenState(library, result);
    return;
  }
  gpu->total = memory.total;
  gpu->used = memory.used;
  observe(library, device, gpu);
  gpu->processesTold = listProcesses(library, device, "nvmlDeviceGetComputeRunningProcesses_v3",
                                     "nvmlDeviceGetComputeRunningProcesses_v2", &gpu->processes);
  listProcesses(library, device, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
                &gpu->processes);
  if (gpu->mig < 0) gpu->fault = faultOf(library, device);
}

/** The MIG devices of a GPU that is divided; they, not the GPU, are what a job can use. */
std::vector<Gpu> migDevices(Library& library, Handle device, const Gpu& whole) {
  std::vector<Gpu> found;
  unsigned int current = 0;
  unsigned int pending = 0;
  if (library.call("nvmlDeviceGetMigMode", device, &current, &pending) != kOk || current != kMigEnabled) return found;
  unsigned int count = 0;
  if (library.call("nvmlDeviceGetMaxMigDeviceCount", device, &count) != kOk) return found;
  for (unsigned int i = 0; i < count && i < 64; ++i) {
    Handle part = nullptr;
    if (library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, &part) != kOk) continue;
    Gpu gpu;
    gpu.index = whole.index;
    gpu.mig = static_cast<int32_t>(i);
    gpu.parent = whole.uuid;
    gpu.bus = whole.bus;
    describe(library, part, &gpu);
    if (gpu.fault.empty()) gpu.fault = whole.fault;
    found.push_back(std::move(gpu));
  }
  return found;
}

}  // namespace

GpuInventory askNvml() {
  GpuInventory inventory;
  Library library;
  if (!library.present()) return inventory;
  const Result started = library.start();
  if (started != kOk) {
    inventory.error = library.text(started);
    return inventory;
  }
  inventory.found = true;
  char driver[96] = {};
  if (library.call("nvmlSystemGetDriverVersion", driver, static_cast<unsigned int>(sizeof driver - 1)) == kOk) {
    inventory.driver = driver;
  }
  unsigned int count = 0;
  if (library.call("nvmlDeviceGetCount_v2", &count) != kOk) return inventory;
  for (unsigned int i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.index = i;
    Handle device = nullptr;
    const Result result = library.call("nvmlDeviceGetHandleByIndex_v2", i, &device);
    if (result == kNoPermission) continue;  // hidden on purpose, as in a container
    if (result != kOk) {
      gpu.fault = brokenState(library, result);
      inventory.gpus.push_back(std::move(gpu));
      continue;
    }
    gpu.bus = busOf(library, device);
    describe(library, device, &gpu);
    std::vector<Gpu> parts = migDevices(library, device, gpu);
    if (parts.empty()) {
      inventory.gpus.push_back(std::move(gpu));
    } else {
      for (Gpu& part : parts) inventory.gpus.push_back(std::move(part));
    }
  }
  return inventory;
}

}  // namespace oomtune
