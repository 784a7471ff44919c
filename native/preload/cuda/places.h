// Which of the ledger's devices a call means. A `Place` is the ledger's index of a device, or kNowhere for one that
// this launch does not count.
#pragma once

#include "types.h"

namespace oomtune::cuda::account {

using Place = int;
constexpr Place kNowhere = -1;

/**
 * Learns which devices the process sees, and calls `found` for each that the launch counts, with its PCI bus id and its
 * uuid as a MIG device. Once, before anything is asked below, with the ledger attached.
 */
void learnDevices(void (*found)(Place place, const char* bus, const char* mig));

/** The device of an ordinal as this process sees it. */
Place placeOf(Device ordinal);
/** The device of a location; kNowhere for the host, whatever part of it. */
Place placeOf(const Location& location);
/** The device of the calling thread's context. */
Place placeOfCurrent();
/** The device on which a stream's work runs. */
Place placeOfStream(Stream stream);
/** An ordinal of this process for a place; -1: none. */
Device ordinalOf(Place place);

}  // namespace oomtune::cuda::account
