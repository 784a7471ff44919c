// Physical memory made by cuMemCreate: it is there while a handle refers to it or an address range is mapped to it.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** A new allocation of ours, with one reference. False: no memory to remember it. */
bool vmmCreated(Handle handle, account::Place place, uint64_t size);
/** Another reference, known by the same handle, or found by an address that it is mapped at. */
void vmmRetained(Handle handle, Address address);
/**
 * Around the driver's own release: as soon as the driver has taken a handle back, another thread may be given it. The
 * first takes the reference away and answers what the second is to be given, with whether the driver did it.
 */
uint32_t vmmReleasing(Handle handle);
void vmmReleased(Handle handle, uint32_t index, bool done);
void vmmMapped(Address address, size_t size, Handle handle);
void vmmUnmapped(Address address, size_t size);
/**
 * Other things that keep memory there though no handle and no address range does: a piece of a sparse array (`piece`
 * tells an array's pieces apart) ...
 */
void vmmInArray(uint64_t array, uint64_t piece, Handle handle);
/**
 * ... and a piece of a multicast object, `offset` bytes into it, by the memory's handle or by an address that it is
 * mapped at.
 */
void vmmBound(uint64_t object, uint64_t offset, Handle handle);
void vmmBoundAt(uint64_t object, uint64_t offset, Address address);
/**
 * Bytes that nothing but pieces of sparse arrays holds. NVML's figure of a process leaves them out, though that of the
 * device has them (H200, driver 580).
 */
uint64_t vmmInArraysOnly(account::Place place);
/** The pieces from `offset` on, `size` of them, of one device (kNowhere: of all) are let go of. */
void vmmLetGo(uint64_t object, account::Place place, uint64_t offset, uint64_t size);
/** In the child of a fork. */
void forgetVmm();

}  // namespace oomtune::cuda
