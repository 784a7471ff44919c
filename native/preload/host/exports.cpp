#include "exports.h"

#include "state.h"

namespace oomtune {

namespace {
Gate closed;  // has no ledger: answers 0 to everything
}

Gate& processGate() {
  Gate* gate = openGate();
  return gate != nullptr ? *gate : closed;
}

}  // namespace oomtune
