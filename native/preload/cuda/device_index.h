// Which of the ledger's devices a call means. A DeviceIndex is an index into Ledger::devices, or kNotCounted for a
// device that this launch does not count.
#pragma once

#include "driver_types.h"

namespace oomtune::cuda::account {

using DeviceIndex = int;
constexpr DeviceIndex kNotCounted = -1;

/**
 * Learns which devices the process sees, and calls `found` for each that the launch counts, with its PCI bus id and its
 * uuid as a MIG device. Once, before anything is asked below, with the ledger attached.
 */
void learnDevices(void (*found)(DeviceIndex deviceIndex, const char* bus, const char* mig));

/** The device of an ordinal as this process sees it. */
DeviceIndex deviceIndexOf(Device ordinal);
/** The device of a location; kNotCounted for the host. */
DeviceIndex deviceIndexOf(const Location& location);
/** The device of the calling thread's context. */
DeviceIndex currentDeviceIndex();
/** The device on which a stream's work runs. */
DeviceIndex deviceIndexOfStream(Stream stream);
/** This process's ordinal of a device; -1: none. */
Device ordinalOf(DeviceIndex deviceIndex);

}  // namespace oomtune::cuda::account
