// NVML's library, found at run time, and the shapes of what it fills.
#pragma once

#include <dlfcn.h>

#include <map>
#include <string>

#include "compat.h"

namespace oomtune::nvml {

using Handle = void*;
using Result = int;

enum : Result {
  kOk = 0,
  kNotSupported = 3,
  kNoPermission = 4,
  kInsufficientSize = 7,
  kGpuLost = 15,
  kResetRequired = 16
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Utilization {
  unsigned int gpu;
  unsigned int memory;
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

struct PciInfo {  // of the _v3 call
  char legacyBusId[16];
  unsigned int domain, bus, device, deviceId, subsystemId;
  char busId[32];
};

constexpr unsigned int kRecoveryAction = 230;  // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, drivers from 12.6 on
constexpr unsigned int kUncorrected = 1;
constexpr unsigned int kSinceBoot = 0;
constexpr unsigned int kMigEnabled = 1;
constexpr unsigned int kCore = 0;  // NVML_TEMPERATURE_GPU

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

}  // namespace oomtune::nvml
