// Overhead: what a process holds on a device besides what the hooks admitted (context, modules, the driver's own
// buffers). It is measured: the driver's figure less what the hooks have live.
#pragma once

#include "places.h"

namespace oomtune::cuda {

/** Measures after a context was made: growth is then believed at once. Does nothing without a ledger. */
void measureContext(account::Place place);
/** Measures overhead and writes it to the ledger. */
void measureNow(account::Place place);
/** Measures if the last measurement is at least `age` milliseconds old; true if it did. */
bool measureIfOlder(account::Place place, uint64_t age);
/** Measures if the last one is older than `times` its own cost, which bounds the share of time spent measuring. */
bool measureOften(account::Place place, unsigned times = 50);

/** Measures at exit, unless a thread was stopped in the middle of a measurement and holds its lock. */
void measureAtEnd(account::Place place);

}  // namespace oomtune::cuda
