// What a preloaded library exports to the job (the Python hook finds these by ctypes in the process's own symbols).
// Include it in exactly one source file of the library, which defines processGate(). Device -1 is the host, n >= 0 the
// CUDA ordinal n. Each of our libraries answers for all devices: the gates of one process share their slot.
#pragma once

#include "budget_gate.h"

#define OOMTUNE_EXPORT extern "C" __attribute__((visibility("default")))

namespace oomtune {

/** The process's gate, attached if possible. */
BudgetGate& processGate();

inline uint32_t deviceIndex(int device) { return device < 0 ? kHostDevice : static_cast<uint32_t>(device) + 1; }

}  // namespace oomtune

/** Bytes this process holds, overhead included. */
OOMTUNE_EXPORT uint64_t oomtune_live(int device) { return oomtune::processGate().live(oomtune::deviceIndex(device)); }

/** The most it held since the last oomtune_reset_peak(). */
OOMTUNE_EXPORT uint64_t oomtune_peak(int device) { return oomtune::processGate().peak(oomtune::deviceIndex(device)); }

OOMTUNE_EXPORT void oomtune_reset_peak(int device) { oomtune::processGate().resetPeak(oomtune::deviceIndex(device)); }

/** 0: none. */
OOMTUNE_EXPORT uint64_t oomtune_budget(int device) {
  const uint64_t budget = oomtune::processGate().budget(oomtune::deviceIndex(device));
  return budget == oomtune::kNoBudget ? 0 : budget;
}

/** Calls refused in the whole launch, on any device. */
OOMTUNE_EXPORT uint64_t oomtune_refused(void) { return oomtune::processGate().refused(); }
