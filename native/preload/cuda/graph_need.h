// How much memory a graph's memory nodes hold at once, by the graph's own order.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Bytes by place. */
struct GraphNeed {
  uint64_t bytes[kDevices];
};

/**
 * The least that the graph's memory nodes need, whatever a driver shares between nodes that follow each other. False:
 * it has none, or the driver does not tell.
 */
bool needOf(Graph graph, GraphNeed* out);

}  // namespace oomtune::cuda
