// An NVML of machines that are hard to come by: test/native loads it into the inventory. FAKE_GPUS names the machine.
//   whole: one sound GPU with two processes, one of which NVML does not tell the bytes of
//   mig:   one GPU divided in two
//   lost:  one GPU that has fallen off the bus, one that asks for a reset, one with ECC errors, one kept from us
//   eight: eight sound GPUs, all free
//   down:  the driver and the library are of different versions
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

using Handle = void*;

struct Memory {
  unsigned long long total, free, used;
};

struct ProcessInfo {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpuInstance, computeInstance;
};

struct PciInfo {
  char legacyBusId[16];
  unsigned int domain, bus, device, deviceId, subsystemId;
  char busId[32];
};

struct FieldValue {
  unsigned int field, scope;
  long long timestamp, latency;
  unsigned int valueType;
  int result;
  union {
    double asDouble;
    unsigned int asUint;
    unsigned long long asUlonglong;
  } value;
};

bool machine(const char* name) {
  const char* wanted = std::getenv("FAKE_GPUS");
  return wanted != nullptr && std::strcmp(wanted, name) == 0;
}

long numberOf(Handle device) { return reinterpret_cast<long>(device); }
Handle handleOf(long number) { return reinterpret_cast<Handle>(number); }
constexpr long kFirst = 1;
constexpr long kMig = 100;
constexpr unsigned long long kGiB = 1ULL << 30;

}  // namespace

API nvmlInit_v2() { return machine("down") ? 18 : 0; }
API nvmlShutdown() { return 0; }
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int result) {
  return result == 18 ? "Driver/library version mismatch" : "Some other error";
}
API nvmlSystemGetDriverVersion(char* out, unsigned int size) { return std::snprintf(out, size, "580.95.05"), 0; }
API nvmlSystemGetProcessName(unsigned int pid, char* out, unsigned int size) {
  if (pid == 12) return 6;
  return std::snprintf(out, size, "/usr/bin/python3"), 0;
}
API nvmlDeviceGetCount_v2(unsigned int* count) { return *count = machine("eight") ? 8 : machine("lost") ? 4 : 1, 0; }
API nvmlDeviceGetHandleByIndex_v2(unsigned int index, Handle* out) {
  if (machine("lost") && index == 0) return 15;
  if (machine("lost") && index == 3) return 4;
  return *out = handleOf(kFirst + index), 0;
}
API nvmlDeviceGetUUID(Handle device, char* out, unsigned int size) {
  const long number = numberOf(device);
  return std::snprintf(out, size, "%s-%ld", number >= kMig ? "MIG" : "GPU", number), 0;
}
API nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* out) {
  *out = PciInfo{};
  out->bus = 0xa0 + static_cast<unsigned>(numberOf(device));
  std::snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
  return 0;
}
API nvmlDeviceGetName(Handle device, char* out, unsigned int size) {
  return std::snprintf(out, size, numberOf(device) >= kMig ? "NVIDIA Fake MIG 3g.40gb" : "NVIDIA Fake"), 0;
}
API nvmlDeviceGetMemoryInfo(Handle device, Memory* out) {
  out->total = numberOf(device) >= kMig ? 40 * kGiB : 80 * kGiB;
  out->used = machine("eight") ? 0 : 5 * kGiB;
  out->free = out->total - out->used;
  return 0;
}
API nvmlDeviceGetUtilizationRates(Handle device, unsigned int* rates) {
  if (numberOf(device) >= kMig) return 3;  // as the real one says of a part
  rates[0] = machine("eight") ? 0 : 87;
  rates[1] = 40;
  return 0;
}
API nvmlDeviceGetTemperature(Handle device, int sensor, unsigned int* degrees) {
  if (numberOf(device) >= kMig || sensor != 0) return 3;
  return *degrees = 61, 0;
}
API nvmlDeviceGetPowerUsage(Handle device, unsigned int* milliwatts) {
  if (numberOf(device) >= kMig) return 3;
  return *milliwatts = 412500, 0;
}
API nvmlDeviceGetComputeRunningProcesses_v3(Handle, unsigned int* count, ProcessInfo* out) {
  if (machine("eight")) return *count = 0, 0;
  const unsigned int room = *count;
  *count = 2;
  if (room < 2) return 7;
  out[0] = {11, 4 * kGiB, 0, 0};
  out[1] = {12, ~0ULL, 0, 0};
  return 0;
}
API nvmlDeviceGetGraphicsRunningProcesses_v3(Handle, unsigned int* count, ProcessInfo* out) {
  if (machine("eight")) return *count = 0, 0;
  *count = 1;  // the same process draws, too
  out[0] = {11, 4 * kGiB, 0, 0};
  return 0;
}
API nvmlDeviceGetMigMode(Handle, unsigned int* current, unsigned int* pending) {
  *current = *pending = machine("mig") ? 1 : 0;
  return 0;
}
API nvmlDeviceGetMaxMigDeviceCount(Handle, unsigned int* count) { return *count = 7, 0; }
API nvmlDeviceGetMigDeviceHandleByIndex(Handle, unsigned int index, Handle* out) {
  if (index != 0 && index != 2) return 6;  // places that nothing stands in
  return *out = handleOf(kMig + index), 0;
}
API nvmlDeviceGetFieldValues(Handle device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].field == 230 && numberOf(device) != 3 ? 0 : 3;  // the third has an older driver
    values[i].value.asUint = machine("lost") && numberOf(device) == 2 ? 1 : 0;
  }
  return 0;
}
API nvmlDeviceGetTotalEccErrors(Handle device, unsigned int type, unsigned int counter, unsigned long long* count) {
  *count = machine("lost") && numberOf(device) == 3 && type == 1 && counter == 0 ? 6 : 0;
  return 0;
}
