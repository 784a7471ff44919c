// The ledger's figures for programs in the job (found by dlsym): `device` is a CUDA ordinal as this process sees it, -1
// the host. Figures are those of the calling process, contexts included.
#include "admission.h"

using oomtune::cuda::account::gate;

namespace {

bool indexOf(int device, uint32_t* out) {
  if (device < -1) return false;
  const int deviceIndex =
      device == -1 ? static_cast<int>(oomtune::kHostDevice) : oomtune::cuda::account::deviceIndexOf(device);
  *out = static_cast<uint32_t>(deviceIndex);
  return deviceIndex >= 0;
}

}  // namespace

#define OOMTUNE_EXPORT extern "C" __attribute__((visibility("default")))

/** Measured at this moment. */
OOMTUNE_EXPORT uint64_t oomtune_live(int device) {
  uint32_t index = 0;
  if (!indexOf(device, &index)) return 0;
  if (index != oomtune::kHostDevice) oomtune::cuda::account::measure(static_cast<int>(index));
  return gate().live(index);
}

/** By measurements that may be some milliseconds old: cheap enough for every phase of a step. */
OOMTUNE_EXPORT uint64_t oomtune_peak(int device) {
  uint32_t index = 0;
  if (!indexOf(device, &index)) return 0;
  if (index != oomtune::kHostDevice) oomtune::cuda::account::refresh(static_cast<int>(index));
  return gate().peak(index);
}

OOMTUNE_EXPORT void oomtune_reset_peak(int device) {
  uint32_t index = 0;
  if (indexOf(device, &index)) gate().resetPeak(index);
}

/** 0: none. */
OOMTUNE_EXPORT uint64_t oomtune_budget(int device) {
  uint32_t index = 0;
  const uint64_t budget = indexOf(device, &index) ? gate().budget(index) : oomtune::kNoBudget;
  return budget == oomtune::kNoBudget ? 0 : budget;
}

OOMTUNE_EXPORT uint64_t oomtune_refused(void) { return gate().refused(); }
