// Functions of the driver that the hooks call themselves, without going through hooks.
#pragma once

#include "driver_types.h"

namespace oomtune::cuda {

/** Null if the driver does not have the function. */
struct Driver {
  Result (*ctxGetCurrent)(Context*);
  Result (*ctxGetDevice)(Device*);
  Result (*ctxPushCurrent)(Context);
  Result (*ctxPopCurrent)(Context*);
  Result (*deviceGetCount)(int*);
  Result (*deviceGetUuid)(Uuid*, Device);
  Result (*deviceGetPciBusId)(char*, int, Device);
  Result (*deviceGetMemPool)(Pool*, Device);
  Result (*deviceGetGraphMemAttribute)(Device, int, void*);
  Result (*poolGetAttribute)(Pool, int, void*);
  Result (*poolTrimTo)(Pool, size_t);
  Result (*memFreeAsync)(Address, Stream);
  Result (*memFreeAsyncPtsz)(Address, Stream);
  Result (*streamSynchronize)(Stream);
  Result (*streamSynchronizePtsz)(Stream);
  Result (*streamGetCtx)(Stream, Context*);
  Result (*streamGetDevice)(Stream, Device*);
  Result (*streamIsCapturing)(Stream, int*);
  Result (*streamIsCapturingPtsz)(Stream, int*);
  Result (*exchangeCaptureMode)(int*);
  Result (*memGetAddressRange)(Address*, size_t*, Address);
  Result (*primaryCtxGetState)(Device, unsigned int*, int*);
  Result (*primaryCtxRelease)(Device);
  Result (*ctxDestroy)(Context);
  Result (*ctxGetLimit)(size_t*, int);
  Result (*graphGetNodes)(Graph, GraphNode*, size_t*);
  Result (*graphGetEdges)(Graph, GraphNode*, GraphNode*, size_t*);
  Result (*graphGetEdgesV2)(Graph, GraphNode*, GraphNode*, void*, size_t*);
  Result (*graphNodeGetType)(GraphNode, int*);
  Result (*graphMemAllocNodeGetParams)(GraphNode, MemAllocNodeParams*);
  Result (*graphMemFreeNodeGetParams)(GraphNode, Address*);
  Result (*graphChildGetGraph)(GraphNode, Graph*);
};

extern Driver driver;

/**
 * Held during driver calls of the hooks themselves: while a stream is being captured, many calls break the capture
 * unless their thread has switched to the relaxed capture mode.
 */
class RelaxedCapture {
 public:
  RelaxedCapture() {
    exchanged_ = driver.exchangeCaptureMode != nullptr && driver.exchangeCaptureMode(&mode_) == kSuccess;
  }
  ~RelaxedCapture() {
    if (exchanged_) driver.exchangeCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = kCaptureRelaxed;
  bool exchanged_ = false;
};

/** Looks all of them up in the open driver. */
void bindCalls(void* handle);

/** Where the driver was found; empty: nowhere. Written by whoever opens it. */
extern char driverPath[4096];

}  // namespace oomtune::cuda
