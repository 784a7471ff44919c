// Stream-ordered pools and graph memory: what they have reserved of the device counts, not what is live in them.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** Reads what the pools of a device have reserved, and counts the difference to the last time. */
void refreshPools(account::Place place);
/** Gives back what the pools keep for later. True if anything came back. */
bool trimPools(account::Place place);
/** While one lives, a pool may have grown already and not be counted yet. */
class PoolCall {
 public:
  PoolCall();
  ~PoolCall();
  PoolCall(const PoolCall&) = delete;
  PoolCall& operator=(const PoolCall&) = delete;
};
bool poolCallsUnderWay();
/** Memory nodes exist: from now on graph memory is looked at. */
void watchGraphs(account::Place place);
/** In the child of a fork. */
void forgetPools();

}  // namespace oomtune::cuda
