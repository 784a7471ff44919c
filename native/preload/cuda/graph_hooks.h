// Memory nodes of graphs, whoever makes them: a call that adds one, or a stream-ordered allocation inside a capture.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/**
 * A node that asks for more than could ever be there would fail when its graph is launched: refuse it where it is made.
 */
bool graphNodeFits(account::Place place, uint64_t bytes, const char* api);
bool graphNodeFits(const MemAllocNodeParams* params, const char* api);

/** In the child of a fork. */
void forgetGraphs();

}  // namespace oomtune::cuda
