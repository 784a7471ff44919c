// This process's gate and table of counted blocks; made on the first block that counts, made anew in a forked child.
#pragma once

#include "gate.h"
#include "table.h"

namespace oomtune {

/** Null: nothing is to be counted (no ledger, too early in the process's life, or a call from within ourselves). */
Gate* openGate();
PointerTable& table();

}  // namespace oomtune
