// The driver's own figures for a device: NVML's for this process or, where the driver knows processes by other pids
// than we do (as in a container), those of the whole device.
#pragma once

#include <pthread.h>

#include <atomic>

#include "device_index.h"
#include "nvml_usage.h"
#include "process_gate.h"

namespace oomtune::cuda {

/** This process's view of one device. `mutex` guards every field that is not atomic. */
struct DeviceWatch {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  NvmlDevice nvml = nullptr;
  std::atomic<bool> pidIsOurs{false};  // NVML's figure for our pid is really ours
  bool pidWasThere = false;            // NVML had a figure for our pid before we had a context: it is another process's
  bool hadContext = false;
  bool reported = false;  // a message has said that only the whole device's figures are available
  std::atomic<bool> measuring{false};
  std::atomic<uint64_t> measuredAt{0};
  std::atomic<uint64_t> costMicroseconds{1000};  // of the cheaper of the last two measurements
  uint64_t costBefore = 1000;                    // of the last one
  std::atomic<uint64_t> freedAt{0};              // milliseconds; 0: nothing was
  uint64_t doubtSince = 0;                       // milliseconds; 0: no doubt
  std::atomic<uint64_t> importedSeen{0};
  int importsUnseen = 0;  // imports so far that did not show in our figure
};

DeviceWatch& watchOf(account::DeviceIndex deviceIndex);

/**
 * False in a child of the process that called cuInit: CUDA does not work there, so that it can hold nothing, and NVML
 * must not be asked, as another thread of the parent may have been in it, with its locks, at the fork.
 */
bool watching();

/** At cuInit, before any context: `bus` and `mig` name the device for NVML. */
void watchDevice(account::DeviceIndex deviceIndex, const char* bus, const char* mig);

/** Milliseconds of a coarse monotonic clock, never 0. */
uint64_t milliseconds();

/** Notes that memory was freed: NVML shows it as used for a moment longer, which is not overhead. */
void noteFreed(account::DeviceIndex deviceIndex);

/** Notes the device's state before a context is made, for devices without figures per process. */
void beforeContext(account::DeviceIndex deviceIndex);

/** Bytes that the hooks have counted for this process. */
uint64_t hookedNow(account::DeviceIndex deviceIndex);

/**
 * Increases with every change of this process's counters: equal sums alone do not show that nothing changed.
 */
uint64_t changesNow();

/**
 * A lock between processes, held from reading to recording if only figures of the whole device are available: two
 * processes that read at once would both charge the same unaccounted bytes to themselves.
 */
class MeasureTurn {
 public:
  MeasureTurn(DeviceWatch& watch, account::DeviceIndex deviceIndex);
  ~MeasureTurn();
  MeasureTurn(const MeasureTurn&) = delete;
  MeasureTurn& operator=(const MeasureTurn&) = delete;
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
 * meanwhile. The caller holds the MeasureTurn. False: there is no figure.
 */
bool usedNow(DeviceWatch& watch, account::DeviceIndex deviceIndex, uint64_t* used, bool* moved);

/** In a forked child: forgets all devices. */
void forgetWatches();

}  // namespace oomtune::cuda
