// What the hooks tell the ledger: whether a size fits, what was given and given back, and what the process holds
// besides. All sizes are bytes.
#pragma once

#include "gate.h"
#include "places.h"
#include "types.h"

namespace oomtune::cuda::account {

/** At cuInit: maps the ledger and learns which devices the process sees. Without a ledger nothing is counted. */
void begin();
Gate& gate();

/** What an allocation of `size` takes from the device: the driver deals in 2 MiB above 1 MiB. */
uint64_t physical(uint64_t size);

/**
 * Promises `size` bytes, or records a refusal in the name of `api`: then the hook answers kOutOfMemory. What takes
 * nothing is never refused.
 */
bool admit(Place place, uint64_t size, const char* api);
/** The driver gave what was admitted, or did not (`result`). */
void settle(Place place, Kind kind, uint64_t size, Result result, const char* api);
/** Counts what is there already and was not admitted (the driver took more than it was asked for). */
void add(Place place, Kind kind, uint64_t size);
void release(Place place, Kind kind, uint64_t size);
/** What is still held and can no longer be followed: it is charged as overhead, where that can be measured. */
void handOver(Place place, Kind kind, uint64_t size);
void refused(Place place, uint64_t size, const char* api, RefusedBy by);

/**
 * Lives around every call that changes what the driver has given, until the ledger knows: meanwhile the two do not
 * agree, and nothing that is measured can be believed.
 */
class Unsettled {
 public:
  Unsettled();
  ~Unsettled();
  Unsettled(const Unsettled&) = delete;
  Unsettled& operator=(const Unsettled&) = delete;
};
bool unsettled();

/** Something was passed through that is not counted. */
void blind(Blind reason);

/** A context came to be or went: measures what the process holds besides what was admitted. */
void measure(Place place);
/** The same, if the last measurement is old. Cheap when it is not. */
void refresh(Place place);

/** The launch holds more than its budget now. */
bool overBudget(Place place);
/** What the launch may still take; kNoBudget without one. */
uint64_t available(Place place);

}  // namespace oomtune::cuda::account
