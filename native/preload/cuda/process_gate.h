// This process's gate to the launch's ledger. A forked child gets a new one.
#pragma once

#include "budget_gate.h"

namespace oomtune::cuda::account {

/**
 * Maps the ledger, once. False: it cannot be used, and the gate stays open. `inChild` is called in a forked child
 * before anything else is counted there: what was counted so far belongs to the parent.
 */
bool attachGate(const char* path, void (*inChild)());

/** The gate. Without a ledger it lets everything through and counts nothing. */
BudgetGate& gate();

/** True in the process that attached the gate, and in a forked child once it has counted something. */
bool gateIsOwn();

/**
 * Held around every driver call that allocates or frees, until the ledger has counted it: meanwhile the two disagree,
 * and no measurement can be believed.
 */
class DriverCall {
 public:
  DriverCall();
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
};
/** True while any thread of this process is in such a call. */
bool driverCallUnderWay();

/** Marks the launch's figures as incomplete: something uncounted was passed through. */
void markBlind(Blind reason);

}  // namespace oomtune::cuda::account
