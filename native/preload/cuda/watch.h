// The driver's own figures for a device: NVML's for this process or, where the driver knows processes by other pids
// than we do (as in a container), those of the whole device.
#pragma once

#include <pthread.h>

#include <atomic>

#include "places.h"
#include "process_gate.h"
#include "usage.h"

namespace oomtune::cuda {

/** One device as this process watches it. `mutex` guards every field that is not atomic. */
struct Watch {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  NvmlDevice nvml = nullptr;
  std::atomic<bool> pidIsOurs{false};  // NVML's figure for our pid is really ours
  bool pidWasThere = false;            // a figure for our pid before we had a context: another process's
  bool hadContext = false;
  bool told = false;  // that only the whole device's figures are to be had
  std::atomic<bool> measuring{false};
  std::atomic<uint64_t> measuredAt{0};
  std::atomic<uint64_t> costMicroseconds{1000};
  std::atomic<uint64_t> freedAt{0};  // milliseconds; 0: nothing was
  uint64_t doubtSince = 0;           // milliseconds; 0: no doubt
  std::atomic<uint64_t> importedSeen{0};
  int importsUnseen = 0;  // imports so far that did not show in our figure
};

Watch& watchOf(account::Place place);

/**
 * False in a child of the process that called cuInit: CUDA does not work there, so that it can hold nothing, and NVML
 * must not be asked, as another thread of the parent may have been in it, with its locks, at the fork.
 */
bool watching();

/** At cuInit, before any context: `bus` and `mig` name the device for NVML. */
void watchDevice(account::Place place, const char* bus, const char* mig);

/** Milliseconds of a coarse monotonic clock, never 0. */
uint64_t milliseconds();

/** Notes that memory was freed: NVML shows it as used for a moment longer, which must not pass for overhead. */
void noteFreed(account::Place place);

/** Notes the device's state before a context is made, for devices without figures per process. */
void beforeContext(account::Place place);

/** Bytes that the hooks have counted for this process. */
uint64_t hookedNow(account::Place place);

/**
 * Counts every change of this process's account: two equal sums may be those before and after a free and an allocation.
 */
uint64_t changesNow();

/**
 * Held from reading to recording, where there are only figures of the whole device: two processes that read at once
 * would both find bytes that nobody accounts for yet, and both charge them to themselves.
 */
class Turn {
 public:
  Turn(Watch& watch, account::Place place);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  /** False: another process held the turn all the time. */
  bool ours() const { return ours_; }

 private:
  Cell* held_ = nullptr;
  bool ours_ = true;
};

/**
 * This process's bytes on the device, contexts included, by whichever figure can be had; without what only sparse
 * arrays hold where the figure is the process's own. By the whole device's, that is what nobody else of the launch
 * accounts for: right for the launch, if nobody else is on the device. `moved`: others of the launch were at work
 * meanwhile. In its Turn. False: there is no figure.
 */
bool usedNow(Watch& watch, account::Place place, uint64_t* used, bool* moved);

/** In the child of a fork. */
void forgetWatches();

}  // namespace oomtune::cuda
