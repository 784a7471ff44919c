// What the hooks tell the ledger: which device a call means, whether its size fits, and what the process holds besides.
// All sizes are bytes; a `Place` is the ledger's index of a device, or kNowhere for one that this launch does not count.
#pragma once

#include "gate.h"
#include "types.h"

namespace oomtune::cuda::account {

using Place = int;
constexpr Place kNowhere = -1;

/** At cuInit: maps the ledger and learns which devices the process sees. Without a ledger nothing is counted. */
void begin();
Gate& gate();

/** The device of an ordinal as this process sees it. */
Place placeOf(Device ordinal);
/** The device of the calling thread's context. */
Place placeOfCurrent();
/** The device on which a stream's work runs. */
Place placeOfStream(Stream stream);
/** An ordinal of this process for a place; -1: none. */
Device ordinalOf(Place place);

/** What an allocation of `size` takes from the device: the driver deals in 2 MiB above 1 MiB. */
uint64_t physical(uint64_t size);

/** Promises `size` bytes, or records a refusal in the name of `api`: then the hook answers kOutOfMemory. */
bool admit(Place place, uint64_t size, const char* api);
/** The driver gave what was admitted, or did not (`result`). */
void settle(Place place, Kind kind, uint64_t size, Result result, const char* api);
/** Counts what is there already and was not admitted (the driver took more than it was asked for). */
void add(Place place, Kind kind, uint64_t size);
void release(Place place, Kind kind, uint64_t size);
void refused(Place place, uint64_t size, const char* api, RefusedBy by);

/**
 * Lives around every call that changes what the driver has given, until the ledger knows: meanwhile the two do not agree,
 * and nothing that is measured can be believed.
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
