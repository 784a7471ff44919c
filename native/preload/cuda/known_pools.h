// The memory pools that the program has used so far.
#pragma once

#include "account.h"

namespace oomtune::cuda {

constexpr account::DeviceIndex kUnknownPool = -2;

/** Whether the program made the pool, or the driver has it as long as it runs. */
enum class Origin { kMade, kBuiltIn };

/**
 * `deviceIndex` is kNotCounted for pools of host memory and imported ones. A known pool stays as it is.
 */
void knowPool(Pool pool, account::DeviceIndex deviceIndex, Origin origin, Kind kind = kAsync);
account::DeviceIndex deviceIndexOfPool(Pool pool);

/** A pool that is being destroyed. */
struct LeavingPool {
  account::DeviceIndex deviceIndex;
  Origin origin;
  Kind kind;
  uint64_t counted;
  uint64_t used;  // by allocations that outlive it
};
/**
 * Around the driver's own destruction: as soon as the driver has taken a pool back, another thread may be given one of
 * the same name. False: it was not known.
 */
bool takePool(Pool pool, LeavingPool* out);
/**
 * Destroyed: what nobody uses is given back; the rest stays until its owners free it, which nobody can see any more.
 */
void poolGone(const LeavingPool& pool);
void poolStays(Pool pool, const LeavingPool& leaving);

/** What the program made on a device whose primary context ended is gone, and may not be asked for its figures. */
void forgetPoolsOn(account::DeviceIndex deviceIndex);

/**
 * Reads what one pool has reserved, and counts the difference, for which the `promised` bytes that were admitted
 * for `deviceIndex` are used up. False: it grew by more than fits; nothing was counted, the promise stands, and the
 * growth has to be undone.
 */
bool countGrowth(Pool pool, account::DeviceIndex deviceIndex, uint64_t promised);
/** Counts the difference, whatever it is. */
void refreshPool(Pool pool);
/** By how much a pool will grow for another allocation, as far as can be told beforehand. */
uint64_t growthFor(Pool pool, uint64_t size);

}  // namespace oomtune::cuda
