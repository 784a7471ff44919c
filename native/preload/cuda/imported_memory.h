// Memory that this process imports from another belongs to that one. Some drivers count it in both: the figure before
// and after the import shows whether, and what is counted twice is left out of the overhead.
#pragma once

#include "account.h"

namespace oomtune::cuda {

struct BeforeImport {
  uint64_t used;  // bytes by the driver's figure; 0: not read, as earlier imports did not show in it
  uint64_t hooked;
};

BeforeImport beforeImport(account::DeviceIndex deviceIndex);
/**
 * Bytes by which this import raised this process's figure: to be given to importGone(). At most `size`, which is 0
 * where it is not known.
 */
uint64_t afterImport(account::DeviceIndex deviceIndex, BeforeImport before, uint64_t size);
void importGone(account::DeviceIndex deviceIndex, uint64_t seen);

}  // namespace oomtune::cuda
