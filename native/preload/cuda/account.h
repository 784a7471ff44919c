// What the hooks tell the ledger: what was given and given back. All sizes are bytes.
#pragma once

#include "places.h"
#include "process_gate.h"
#include "types.h"

namespace oomtune::cuda::account {

/** Bytes that an allocation of `size` takes from the device: above 1 MiB the driver rounds up to 2 MiB. */
uint64_t physical(uint64_t size);

/** Ends what admit() began: counts the allocation if `result` is success, else gives the promise back and records why.
 */
void settle(Place place, Kind kind, uint64_t size, Result result, const char* api);
/** Counts memory that was never admitted, as the driver took more than it was asked for. Never refused. */
void add(Place place, Kind kind, uint64_t size);
void release(Place place, Kind kind, uint64_t size);
/** Stops following memory that is still held: from now on it is charged as overhead, where that can be measured. */
void handOver(Place place, Kind kind, uint64_t size);
void refused(Place place, uint64_t size, const char* api, RefusedBy by);

/** True if the launch holds more than its budget now. */
bool overBudget(Place place);
/** Bytes that the launch may still take; kNoBudget without a budget. */
uint64_t available(Place place);

}  // namespace oomtune::cuda::account
