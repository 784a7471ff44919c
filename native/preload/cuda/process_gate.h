// This process's gate to the launch's ledger. A forked child gets a new one.
#pragma once

#include "gate.h"

namespace oomtune::cuda::account {

/**
 * Maps the ledger, once. False: it cannot be used, and the gate stays open. `inChild` is called in a forked child
 * before anything else is counted there: what was counted so far belongs to the parent.
 */
bool attachGate(const char* path, void (*inChild)());

/** The gate. Without a ledger it lets everything through and counts nothing. */
Gate& gate();

/** True in the process that attached the gate, and in a forked child once it has counted something. */
bool gateIsOwn();

/**
 * Put around every call that changes what the driver has given, until the ledger knows: meanwhile the two do not agree,
 * and nothing that is measured can be believed.
 */
class Unsettled {
 public:
  Unsettled();
  ~Unsettled();
  Unsettled(const Unsettled&) = delete;
  Unsettled& operator=(const Unsettled&) = delete;
};
/** True while any thread of this process is inside such a call. */
bool unsettled();

/** Marks the launch's figures as incomplete: something was passed through that is not counted. */
void blind(Blind reason);

}  // namespace oomtune::cuda::account
