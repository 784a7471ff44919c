// Overhead: what a process holds on a device besides what the hooks admitted (context, modules, the driver's own
// buffers). It is measured: NVML's figure for this process less what the hooks have live. Where NVML knows no processes
// (a container with pids of its own) the growth of the whole device stands in, as far as nobody else is there.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** At cuInit, before any context: `bus` and `mig` name the device for NVML. */
void watchDevice(account::Place place, const char* bus, const char* mig);

/** Notes the device's state before a context is made, for devices without figures per process. */
void beforeContext(account::Place place);

/** After a context was made. */
void measureContext(account::Place place);
void measureNow(account::Place place);
/** Measures if the last time lies at least `milliseconds` back; true if it did. */
bool measureIfOlder(account::Place place, uint64_t milliseconds);
/** The same if that much lies `times` what measuring took back: so it takes at most that part of the time. */
bool measureOften(account::Place place, unsigned times = 50);

/** Notes that memory was freed: NVML shows it as used for a moment longer, which must not pass for overhead. */
void noteFreed(account::Place place);

/** At exit, when a thread may have stopped in the middle of a measurement: then this one is left out. */
void measureAtEnd(account::Place place);

/**
 * Memory of another process that is mapped here belongs to that process. Whether NVML counts it here as well is seen by
 * looking before and after; what it counts twice is left out of the overhead.
 */
uint64_t beforeImport(account::Place place);
/** Bytes by which this import raised this process's figure: to be given to importGone(). */
uint64_t afterImport(account::Place place, uint64_t before, uint64_t size);
void importGone(account::Place place, uint64_t seen);

/** In the child of a fork. */
void forgetMeasurements();

}  // namespace oomtune::cuda
