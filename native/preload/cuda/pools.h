// Stream-ordered pools and graph memory: what they have reserved of the device counts, not what is live in them.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Takes back what the pools of a device have given back, and counts what its graphs have reserved. */
void refreshPools(account::Place place);
/** Gives back what the pools keep for later. True if anything came back. */
bool trimPools(account::Place place);
/** Memory nodes exist: from now on graph memory is looked at. */
void watchGraphs(account::Place place);
/** What graphs have reserved of a device, as it was last seen. */
uint64_t graphsReserved(account::Place place);
/** After a call that may have taken memory for graphs, for which `promised` bytes were admitted. */
void countGraphs(account::Place place, uint64_t promised);
/** In the child of a fork. */
void forgetPools();

}  // namespace oomtune::cuda
