// NVML's figures for what a process or a device holds. Needs no context, and makes none.
#pragma once

#include <cstdint>

namespace oomtune::cuda {

/** A device of NVML; null: NVML is not there or does not know the device. */
using NvmlDevice = struct NvmlDeviceOpaque*;

/** Finds the device with this PCI bus id ("0000:17:00.0"), or the MIG device with this uuid ("MIG-…"). */
NvmlDevice nvmlDevice(const char* pciBusId, const char* migUuid);

enum class Lookup { kUnknown, kAbsent, kFound };

/** Bytes that process `pid` holds on the device. kAbsent: NVML lists processes, but not this one. */
Lookup nvmlProcessBytes(NvmlDevice device, uint32_t pid, uint64_t* bytes);

/** Bytes in use on the whole device. */
bool nvmlDeviceBytes(NvmlDevice device, uint64_t* used);

}  // namespace oomtune::cuda
