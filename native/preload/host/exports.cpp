#include "exports.h"

#include "host_gate.h"

namespace oomtune {

namespace {
BudgetGate closed;  // has no ledger: answers 0 to everything
}

BudgetGate& processGate() {
  BudgetGate* gate = hostGate();
  return gate != nullptr ? *gate : closed;
}

}  // namespace oomtune

// A fork goes on with its parent's memory, and frees some of it. These say which of the two counts it: a fork that is
// to be as good as a start counts all that a start would have.

/** From now on a fork counts what this process holds. */
OOMTUNE_EXPORT void oomtune_disown(void) {
  oomtune::BudgetGate* gate = oomtune::hostGate();
  if (gate != nullptr) gate->release(oomtune::kHostDevice, oomtune::kClassic, oomtune::table().count(false));
}

/** From now on this process counts all that it holds. */
OOMTUNE_EXPORT void oomtune_adopt(void) {
  oomtune::BudgetGate* gate = oomtune::hostGate();
  if (gate == nullptr) return;
  const uint64_t size = oomtune::table().count(true);
  // Takes back first what an earlier fork died with, else it would look as if both had been there at once.
  if (gate->reserve(oomtune::kHostDevice, size, "fork", false)) {
    gate->commit(oomtune::kHostDevice, oomtune::kClassic, size);
  } else {
    gate->add(oomtune::kHostDevice, oomtune::kClassic, size);
  }
}
