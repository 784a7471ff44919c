// The real driver, opened at the first call: what it exports, and which of its functions are hooked.
#pragma once

#include "types.h"

namespace oomtune::cuda {

/**
 * A function of the driver that the stand-in answers itself. `real` receives the driver's own; null where it has none.
 */
struct Hook {
  const char* name;
  void* hook;
  void** real;
};

struct HookList {
  const Hook* hooks;
  size_t count;
};

// One list a file of hooks.
extern const HookList kContextHooks;
extern const HookList kLinearHooks;
extern const HookList kHostHooks;
extern const HookList kPoolHooks;
extern const HookList kVmmHooks;
extern const HookList kGraphHooks;
extern const HookList kArrayHooks;
extern const HookList kFirstHooks;

/** Declares `name_real`, the driver's own function, and is followed by the body of the hook. */
#define OOMTUNE_HOOK(name, ...)                 \
  Result (*name##_real)(__VA_ARGS__) = nullptr; \
  Result name##_hook(__VA_ARGS__)
#define OOMTUNE_HOOKED(name) \
  Hook { #name, reinterpret_cast<void*>(name##_hook), reinterpret_cast<void**>(&name##_real) }

/** Functions of the driver that the hooks call for themselves. Null where the driver has none. */
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
 * Lives around calls that the hooks make for themselves: while some stream is being captured, many calls of the driver
 * break the capture, unless their thread says that it knows what it does.
 */
class Relaxed {
 public:
  Relaxed() { exchanged_ = driver.exchangeCaptureMode != nullptr && driver.exchangeCaptureMode(&mode_) == kSuccess; }
  ~Relaxed() {
    if (exchanged_) driver.exchangeCaptureMode(&mode_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int mode_ = kCaptureRelaxed;
  bool exchanged_ = false;
};

/** Opens the real driver if that was not done yet. False: there is none. */
bool openDriver();
/** Where it was found; empty: nowhere. */
const char* driverPath();

/**
 * What the driver's own resolver answered, or the hook in its place. Substitution by pointer honours name, version and
 * flags alike, as the resolver has applied them.
 */
void* substitute(const char* symbol, void* resolved);

}  // namespace oomtune::cuda
