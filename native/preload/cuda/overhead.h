// Overhead: what a process holds on a device besides what the hooks have counted (context, modules, the driver's own
// buffers). Measured as the driver's figure minus the live bytes of the hooks.
#pragma once

#include "device_index.h"

namespace oomtune::cuda {

/** Measures after a context was made: growth is then believed at once. Does nothing without a ledger. */
void measureContext(account::DeviceIndex deviceIndex);
/** Measures overhead and writes it to the ledger. */
void measureNow(account::DeviceIndex deviceIndex);
/** Measures if the last measurement is at least `age` milliseconds old; true if it did. */
bool measureIfOlder(account::DeviceIndex deviceIndex, uint64_t age);
/** Measures if the last one is older than `times` its own cost, which bounds the share of time spent measuring. */
bool measureOften(account::DeviceIndex deviceIndex, unsigned times = 50);

/** Measures at exit, unless a thread was stopped in the middle of a measurement and holds its lock. */
void measureAtEnd(account::DeviceIndex deviceIndex);

}  // namespace oomtune::cuda
