// The pools that the program has used so far.
#pragma once

#include "account.h"

namespace oomtune::cuda {

constexpr account::Place kUnknownPool = -2;

/** kNowhere for a pool that does not count: of host memory, imported. */
void knowPool(Pool pool, account::Place place);
void forgetPool(Pool pool);
account::Place placeOfPool(Pool pool);
/**
 * Reads what one pool has reserved, and counts the difference, for which the `promised` bytes that were admitted are used
 * up. False: it grew by more than fits; nothing was counted, the promise stands, and the growth has to be undone.
 */
bool countGrowth(Pool pool, uint64_t promised);
/** Counts the difference, whatever it is. */
void refreshPool(Pool pool);
/** By how much a pool will grow for another allocation, as far as can be told beforehand. */
uint64_t growthFor(Pool pool, uint64_t size);

}  // namespace oomtune::cuda
