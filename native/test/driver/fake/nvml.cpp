// An NVML of no device, over the same pretended card as the fake driver. FAKE_NO_PIDS: as in a container whose pids
// NVML does not know, only the figures of whole devices are right. FAKE_NVML_SLOW: microseconds that it takes before it
// looks, and after.
#include <stdio.h>
#include <unistd.h>

#include "state.h"

#define API extern "C" __attribute__((visibility("default"))) int

struct ProcessInfo {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpuInstance;
  unsigned int computeInstance;
};

struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryInfo2 {
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

using Handle = void*;

static int ordinal(Handle handle) { return static_cast<int>(reinterpret_cast<long>(handle)) - 1; }

/** As with the real one: in a child of the process that loaded it, a lock may be held by a thread that is not there. */
static void notForked() {
  static const int loadedBy = getpid();
  if (getpid() == loadedBy) return;
  static const char kWords[] = "NVML was called in a forked child\n";
  if (write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) _exit(98);
  _exit(97);
}

API nvmlInit_v2() { return notForked(), 0; }
API nvmlShutdown() { return 0; }
API nvmlDeviceGetCount_v2(unsigned int* count) {
  return *count = static_cast<unsigned>(fake::number("FAKE_COUNT", 1)), 0;
}
API nvmlDeviceGetHandleByIndex_v2(unsigned int index, Handle* handle) {
  return *handle = reinterpret_cast<Handle>(static_cast<long>(index) + 1), 0;
}
API nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Handle* handle) {
  unsigned int domain = 0;
  unsigned int number = 0;
  if (sscanf(bus, "%x:%x", &domain, &number) != 2 || number == 0) return 6;
  *handle = reinterpret_cast<Handle>(static_cast<long>(number));
  return 0;
}
API nvmlDeviceGetHandleByUUID(const char*, Handle*) { return 6; }
API nvmlDeviceGetIndex(Handle handle, unsigned int* index) {
  return *index = static_cast<unsigned>(ordinal(handle)), 0;
}
API nvmlDeviceGetUUID(Handle handle, char* uuid, unsigned int length) {
  snprintf(uuid, length, "GPU-aa000000-0000-0000-0000-0000000000%02x", ordinal(handle));
  return 0;
}
API nvmlDeviceGetMemoryInfo(Handle handle, MemoryInfo* info) {
  notForked();
  fake::Locked state;
  info->total = state->capacity;
  info->used = state.used(ordinal(handle));
  info->free = info->total - info->used;
  return 0;
}
API nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryInfo2* info) {
  MemoryInfo plain{};
  nvmlDeviceGetMemoryInfo(handle, &plain);
  info->total = plain.total;
  info->used = plain.used;
  info->free = plain.free;
  info->reserved = 300 << 20;
  return 0;
}
static int processes(Handle handle, unsigned int* count, ProcessInfo* infos) {
  fake::Locked state;
  unsigned int found = 0;
  for (const fake::Process& process : state->processes) {
    if (process.pid == 0 || process.bytes[ordinal(handle)] == 0) continue;
    if (found == *count) return 7;
    const unsigned int pid = static_cast<unsigned>(process.pid) + (getenv("FAKE_NO_PIDS") != nullptr ? 1000000 : 0);
    const uint64_t ghost = fake::now() < process.ghostUntil ? process.ghost[ordinal(handle)] : 0;
    infos[found++] =
        ProcessInfo{pid, process.bytes[ordinal(handle)] - process.inArraysOnly[ordinal(handle)] + ghost, 0, 0};
  }
  *count = found;
  return 0;
}
API nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, unsigned int* count, ProcessInfo* infos) {
  notForked();
  const useconds_t slow = static_cast<useconds_t>(fake::number("FAKE_NVML_SLOW", 0));
  usleep(slow);
  const int result = processes(handle, count, infos);
  usleep(slow);
  return result;
}
API nvmlDeviceGetGraphicsRunningProcesses_v3(Handle, unsigned int* count, ProcessInfo*) { return *count = 0, 0; }
