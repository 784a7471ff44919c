// What the files of the fake driver share. All but the per-thread state is guarded by `mutex`.
#pragma once

#include <map>
#include <mutex>

#include "driver_types.h"
#include "state.h"

#define API extern "C" __attribute__((visibility("default"))) oomtune::cuda::Result

/**
 * An injected fault: FAKE_FAIL="name:n:result" makes the n-th call of `name` answer `result`, "name:n+:result" all from
 * it on.
 */
#define FAULT(name) \
  if (oomtune::cuda::Result injected = fake::fault(name); injected != 0) return injected

/**
 * What a thread whose stream is being captured may not call, unless it asked for the relaxed mode: it breaks the
 * capture.
 */
#define UNSAFE_IN_CAPTURE() \
  if (fake::breaksCapture()) return 900

namespace fake {

using namespace oomtune::cuda;

extern std::mutex mutex;
/** The calling thread's context; 0: none. */
extern thread_local uint64_t current;
extern thread_local bool capturing;
extern bool initialised;

int deviceCount();
Result fault(const char* name);
bool breaksCapture();
/** Ends the calling thread's capture; false: something broke it. */
bool endCapture();

/** Takes (or with a negative size gives back) bytes of a device for this process. False: the card is full. */
bool take(int device, int64_t bytes);
uint64_t rounded(uint64_t size);
/** An address or a handle, never given twice, with room for `size` bytes after it. */
uint64_t newName(uint64_t size);
/** The device of the calling thread's context; false: it has none. */
bool currentDevice(int* device);
/** The device of a context; false: there is no such context. */
bool deviceOf(uint64_t context, int* device);

/** Linear memory, also under arrays: what is above 1 MiB takes pages of its own, the rest shares them. */
struct Block {
  int device;
  uint64_t size;
  uint64_t context;
  uint64_t pages;
};
Result allocate(int device, uint64_t size, Block* out);
void giveBack(const Block& block);

/** What goes with a context, and what goes with a device's primary one. */
void forgetBlocks(uint64_t context);
void forgetArrays(uint64_t context);
void forgetPools(int device);

/** A capture makes a graph of the calling thread's stream, one node after the other. */
void beginGraph();
Graph endGraph();
Address captureAllocation(int device, uint64_t bytes);
void captureFree(Address address);

}  // namespace fake
