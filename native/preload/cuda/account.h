// What the hooks tell the ledger: what was given and given back. All sizes are bytes.
#pragma once

#include "places.h"
#include "process_gate.h"
#include "types.h"

namespace oomtune::cuda::account {

/** What an allocation of `size` takes from the device: the driver deals in 2 MiB above 1 MiB. */
uint64_t physical(uint64_t size);

/** The driver gave what was admitted, or did not (`result`). */
void settle(Place place, Kind kind, uint64_t size, Result result, const char* api);
/** Counts what is there already and was not admitted (the driver took more than it was asked for). */
void add(Place place, Kind kind, uint64_t size);
void release(Place place, Kind kind, uint64_t size);
/** What is still held and can no longer be followed: it is charged as overhead, where that can be measured. */
void handOver(Place place, Kind kind, uint64_t size);
void refused(Place place, uint64_t size, const char* api, RefusedBy by);

/** The launch holds more than its budget now. */
bool overBudget(Place place);
/** What the launch may still take; kNoBudget without one. */
uint64_t available(Place place);

}  // namespace oomtune::cuda::account
