// Stream-ordered pools and graph memory. Counted are the bytes that they have reserved of the device, not those in use.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Reads what the pools and graphs of a device have reserved now, and counts the difference. */
void refreshPools(account::DeviceIndex deviceIndex);
/** Has the pools return what they keep for later. True if they returned anything. */
bool trimPools(account::DeviceIndex deviceIndex);
/** Call it when a memory node exists: from then on graph memory is read, too. */
void watchGraphs(account::DeviceIndex deviceIndex);
/** Bytes that graphs had reserved of a device when they were last read. */
uint64_t graphsReserved(account::DeviceIndex deviceIndex);
/** After a call that may have taken memory for graphs, for which `promised` bytes were admitted. */
void countGraphs(account::DeviceIndex deviceIndex, uint64_t promised);
/** In a forked child. */
void forgetPools();

}  // namespace oomtune::cuda
