#include "driver_calls.h"

#include <dlfcn.h>

#include "compat.h"

namespace oomtune::cuda {

Driver driver;
char driverPath[4096];

namespace {

template <class Function>
void find(void* handle, Function* out, const char* name, const char* older = nullptr) {
  void* at = dlsym(handle, name);
  if (at == nullptr && older != nullptr) at = dlsym(handle, older);
  *out = reinterpret_cast<Function>(at);
}

}  // namespace

void bindCalls(void* handle) {
  find(handle, &driver.ctxGetCurrent, "cuCtxGetCurrent");
  find(handle, &driver.ctxGetDevice, "cuCtxGetDevice");
  find(handle, &driver.ctxPushCurrent, "cuCtxPushCurrent_v2");
  find(handle, &driver.ctxPopCurrent, "cuCtxPopCurrent_v2");
  find(handle, &driver.deviceGetCount, "cuDeviceGetCount");
  find(handle, &driver.deviceGetUuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
  find(handle, &driver.deviceGetPciBusId, "cuDeviceGetPCIBusId");
  find(handle, &driver.deviceGetMemPool, "cuDeviceGetMemPool");
  find(handle, &driver.deviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute");
  find(handle, &driver.poolGetAttribute, "cuMemPoolGetAttribute");
  find(handle, &driver.poolTrimTo, "cuMemPoolTrimTo");
  find(handle, &driver.memFreeAsync, "cuMemFreeAsync");
  find(handle, &driver.memFreeAsyncPtsz, "cuMemFreeAsync_ptsz");
  find(handle, &driver.streamSynchronize, "cuStreamSynchronize");
  find(handle, &driver.streamSynchronizePtsz, "cuStreamSynchronize_ptsz");
  find(handle, &driver.streamGetCtx, "cuStreamGetCtx");
  find(handle, &driver.streamGetDevice, "cuStreamGetDevice");
  find(handle, &driver.streamIsCapturing, "cuStreamIsCapturing");
  find(handle, &driver.streamIsCapturingPtsz, "cuStreamIsCapturing_ptsz", "cuStreamIsCapturing");
  find(handle, &driver.exchangeCaptureMode, "cuThreadExchangeStreamCaptureMode");
  find(handle, &driver.memGetAddressRange, "cuMemGetAddressRange_v2");
  find(handle, &driver.primaryCtxGetState, "cuDevicePrimaryCtxGetState");
  find(handle, &driver.primaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease");
  find(handle, &driver.ctxDestroy, "cuCtxDestroy_v2", "cuCtxDestroy");
  find(handle, &driver.ctxGetLimit, "cuCtxGetLimit");
  find(handle, &driver.graphGetNodes, "cuGraphGetNodes");
  find(handle, &driver.graphGetEdges, "cuGraphGetEdges");
  find(handle, &driver.graphGetEdgesV2, "cuGraphGetEdges_v2");
  find(handle, &driver.graphNodeGetType, "cuGraphNodeGetType");
  find(handle, &driver.graphMemAllocNodeGetParams, "cuGraphMemAllocNodeGetParams");
  find(handle, &driver.graphMemFreeNodeGetParams, "cuGraphMemFreeNodeGetParams");
  find(handle, &driver.graphChildGetGraph, "cuGraphChildGraphNodeGetGraph");
}

}  // namespace oomtune::cuda
