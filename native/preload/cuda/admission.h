// Whether an allocation may be made: asked by the hooks before they call the driver. All sizes are bytes.
#pragma once

#include "account.h"

namespace oomtune::cuda::account {

/**
 * Promises `size` bytes of the budget. False: they do not fit; the refusal is recorded under the name `api`, and the
 * hook must answer kOutOfMemory. A size of 0 is never refused.
 */
bool admit(DeviceIndex deviceIndex, uint64_t size, const char* api);

/** Measures overhead now. Call it after a context was made or destroyed. */
void measure(DeviceIndex deviceIndex);
/** Measures overhead if the last measurement is old; cheap when it is not. */
void refresh(DeviceIndex deviceIndex);

}  // namespace oomtune::cuda::account
