// Physical memory made by cuMemCreate: it is there while a handle refers to it or an address range is mapped to it.
#pragma once

#include "account.h"

namespace oomtune::cuda {

/** A new allocation of ours, with one reference. False: no memory to remember it. */
bool vmmCreated(Handle handle, account::Place place, uint64_t size);
/** Another reference, known by the same handle, or found by an address that it is mapped at. */
void vmmRetained(Handle handle, Address address);
/**
 * Around the driver's own release: as soon as the driver has taken a handle back, another thread may be given it. The first
 * takes the reference away and answers what the second is to be given, with whether the driver did it.
 */
uint32_t vmmReleasing(Handle handle);
void vmmReleased(Handle handle, uint32_t block, bool done);
void vmmMapped(Address address, size_t size, Handle handle);
void vmmUnmapped(Address address, size_t size);
/** In the child of a fork. */
void forgetVmm();

}  // namespace oomtune::cuda
