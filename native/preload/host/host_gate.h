// This process's gate and table of counted blocks: made at the first counted block, and anew in a forked child.
#pragma once

#include "budget_gate.h"
#include "pointer_table.h"

namespace oomtune {

/** Null: nothing is counted (no ledger, too early in the process's life, or a call from within this library). */
BudgetGate* hostGate();
PointerTable& table();

}  // namespace oomtune
