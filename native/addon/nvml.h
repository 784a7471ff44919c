// The parts of NVML that are used, found at run time. Prototypes follow NVIDIA's documentation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oomtune {

struct GpuProcess {
  uint32_t pid;
  std::string name;
  uint64_t used;
  bool known;  // false: the driver does not tell this process's bytes
};

struct Gpu {
  uint32_t index = 0;  // of the whole GPU, as nvidia-smi counts
  int32_t mig = -1;    // index of the MIG device on it, -1: the whole GPU
  std::string uuid;
  std::string parent;  // uuid of the GPU that a MIG device is part of
  std::string bus;     // PCI bus id as the kernel writes it ("0000:17:00.0"); of the whole GPU
  std::string model;
  std::string fault;  // empty: none
  uint64_t total = 0;
  uint64_t used = 0;
  // What it is doing; -1: not told (a MIG device, an older GPU).
  int32_t utilisation = -1;  // percent of the last sample's time in which a kernel ran
  int32_t temperature = -1;  // degrees Celsius
  int64_t power = -1;        // milliwatts
  bool processesTold = false;
  std::vector<GpuProcess> processes;
};

struct GpuInventory {
  bool found = false;  // NVML is there and answered
  std::string driver;
  std::string error;  // why not, when the library is there but does not answer
  std::vector<Gpu> gpus;
};

/** Asks NVML afresh; makes no CUDA context. May take some 100 ms on a machine without persistence mode. */
GpuInventory askNvml();

}  // namespace oomtune
