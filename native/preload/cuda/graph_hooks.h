// Memory nodes of graphs, whoever makes them: a call that adds one, or a stream-ordered allocation inside a capture.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/**
 * True if the budget could ever hold the node. A larger one would fail at its graph's launch: it is refused when made.
 */
bool graphNodeFits(account::DeviceIndex deviceIndex, uint64_t bytes, const char* api);
bool graphNodeFits(const MemAllocNodeParams* params, const char* api);

/** In a forked child. */
void forgetGraphs();

}  // namespace oomtune::cuda
