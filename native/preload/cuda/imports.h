// Memory of another process that is mapped here belongs to that process. Whether the driver counts it here as well is
// seen by looking before and after; what it counts twice is left out of the overhead.
#pragma once

#include "account.h"

namespace oomtune::cuda {

struct BeforeImport {
  uint64_t used;  // 0: nobody looks, as it is clear that imports do not show
  uint64_t hooked;
};

BeforeImport beforeImport(account::Place place);
/**
 * Bytes by which this import raised this process's figure: to be given to importGone(). At most `size`, which is 0
 * where it is not known.
 */
uint64_t afterImport(account::Place place, BeforeImport before, uint64_t size);
void importGone(account::Place place, uint64_t seen);

}  // namespace oomtune::cuda
