// How much memory a graph's memory nodes hold at once, by the order of its nodes.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Bytes by DeviceIndex. */
struct GraphNeed {
  uint64_t bytes[kDevices];
};

/**
 * The least bytes that the graph's memory nodes need, however much memory a driver reuses between them. False: there
 * are none, or the driver does not tell.
 */
bool needOf(Graph graph, GraphNeed* out);

}  // namespace oomtune::cuda
