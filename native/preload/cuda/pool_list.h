// The pools that the program has used so far.
#pragma once

#include "account.h"

namespace oomtune::cuda {

constexpr account::Place kUnknownPool = -2;

/** kNowhere for a pool that does not count: of host memory, imported. */
void knowPool(Pool pool, account::Place place);
void forgetPool(Pool pool);
account::Place placeOfPool(Pool pool);
/** Reads what one pool has reserved, and counts the difference. True if it grew. */
bool refreshPool(Pool pool);
/** By how much a pool will grow for another allocation, as far as can be told beforehand. */
uint64_t growthFor(Pool pool, uint64_t size);

}  // namespace oomtune::cuda
