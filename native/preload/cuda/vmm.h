// Physical memory made by cuMemCreate: it is there while a handle refers to it or an address range is mapped to it.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** A new allocation, with one reference. False: no memory for its record. */
bool vmmCreated(Handle handle, account::DeviceIndex deviceIndex, uint64_t size);
/** Another reference, known by the same handle, or found by an address that it is mapped at. */
void vmmRetained(Handle handle, Address address);
/**
 * Called before and after the driver's own release: as soon as the driver has taken a handle back, another thread may
 * get it. The first removes the reference and returns the index for the second; `done`: whether the driver released it.
 */
uint32_t vmmReleasing(Handle handle);
void vmmReleased(Handle handle, uint32_t index, bool done);
void vmmMapped(Address address, size_t size, Handle handle);
void vmmUnmapped(Address address, size_t size);
/**
 * What else keeps memory allocated without a handle or a mapping: a piece of a sparse array (`piece` identifies it) ...
 */
void vmmInArray(uint64_t array, uint64_t piece, Handle handle);
/**
 * ... and a piece of a multicast object, `offset` bytes into it, by the memory's handle or by an address that it is
 * mapped at.
 */
void vmmBound(uint64_t object, uint64_t offset, Handle handle);
void vmmBoundAt(uint64_t object, uint64_t offset, Address address);
/**
 * Bytes held by pieces of sparse arrays only. NVML's figure for a process leaves them out, that for the device does not
 * (H200, driver 580).
 */
uint64_t vmmInArraysOnly(account::DeviceIndex deviceIndex);
/** Releases `size` pieces from `offset` on, of one device (kNotCounted: of all). */
void vmmLetGo(uint64_t object, account::DeviceIndex deviceIndex, uint64_t offset, uint64_t size);
/** In a forked child. */
void forgetVmm();

}  // namespace oomtune::cuda
