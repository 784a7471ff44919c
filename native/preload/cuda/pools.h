// Stream-ordered pools and graph memory. What counts is what they have reserved of the device, not what is live in
// them.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Reads what the pools and graphs of a device have reserved now, and counts the difference. */
void refreshPools(account::Place place);
/** Has the pools return what they keep for later. True if they returned anything. */
bool trimPools(account::Place place);
/** To be called when a memory node exists: from then on graph memory is read, too. */
void watchGraphs(account::Place place);
/** Bytes that graphs had reserved of a device when they were last read. */
uint64_t graphsReserved(account::Place place);
/** After a call that may have taken memory for graphs, for which `promised` bytes were admitted. */
void countGraphs(account::Place place, uint64_t promised);
/** In the child of a fork. */
void forgetPools();

}  // namespace oomtune::cuda
