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
