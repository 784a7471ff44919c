// Counts in the ledger what the hooks saw allocated and freed. All sizes are bytes.
#pragma once

#include "device_index.h"
#include "driver_types.h"
#include "process_gate.h"

namespace oomtune::cuda::account {

/** Bytes that an allocation of `size` takes from the device: above 1 MiB the driver rounds up to 2 MiB. */
uint64_t physical(uint64_t size);

/** Ends what admit() began: counts the allocation if `result` is success, else gives the promise back and records why.
 */
void settle(DeviceIndex deviceIndex, Kind kind, uint64_t size, Result result, const char* api);
/** Counts memory that was not admitted before: the driver took more than it was asked for. Never refused. */
void add(DeviceIndex deviceIndex, Kind kind, uint64_t size);
void release(DeviceIndex deviceIndex, Kind kind, uint64_t size);
/** Stops following memory that is still held: from now on it is charged as overhead, where that can be measured. */
void handOver(DeviceIndex deviceIndex, Kind kind, uint64_t size);
void refused(DeviceIndex deviceIndex, uint64_t size, const char* api, RefusedBy by);

/** True if the launch holds more than its budget now. */
bool overBudget(DeviceIndex deviceIndex);
/** Bytes that the launch may still take; kNoBudget without a budget. */
uint64_t available(DeviceIndex deviceIndex);

}  // namespace oomtune::cuda::account
