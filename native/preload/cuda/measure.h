// Overhead: what a process holds on a device besides what the hooks admitted (context, modules, the driver's own
// buffers). It is measured: the driver's figure less what the hooks have live.
#pragma once

#include "places.h"

namespace oomtune::cuda {

/** After a context was made. */
void measureContext(account::Place place);
void measureNow(account::Place place);
/** Measures if the last measurement is at least `age` milliseconds old; true if it did. */
bool measureIfOlder(account::Place place, uint64_t age);
/** The same if that much lies `times` what measuring took back: so it takes at most that part of the time. */
bool measureOften(account::Place place, unsigned times = 50);

/** At exit, when a thread may have stopped in the middle of a measurement: then this one is left out. */
void measureAtEnd(account::Place place);

}  // namespace oomtune::cuda
