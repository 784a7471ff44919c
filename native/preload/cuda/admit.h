// Whether an allocation may be made: asked by the hooks before they call the driver. All sizes are bytes.
#pragma once

#include "account.h"

namespace oomtune::cuda::account {

/**
 * Promises `size` bytes, or records a refusal in the name of `api`: then the hook answers kOutOfMemory. What takes
 * nothing is never refused.
 */
bool admit(Place place, uint64_t size, const char* api);

/** A context came to be or went: measures what the process holds besides what was admitted. */
void measure(Place place);
/** The same, if the last measurement is old. Cheap when it is not. */
void refresh(Place place);

}  // namespace oomtune::cuda::account
