// Memory nodes of graphs. Their memory is the device's graph memory, which is read when graphs are made, uploaded and
// destroyed, and at every measurement; launching a graph is never hooked.
#include "account.h"
#include "driver.h"
#include "pools.h"

namespace oomtune::cuda {

namespace {

using account::Place;

/** A node that asks for more than is left would fail when its graph is launched: refuse it where it can be refused. */
bool nodeFits(const MemAllocNodeParams* params, const char* api) {
  if (params == nullptr) return true;
  const Place place = account::placeOf(params->pool.location);
  if (place < 0) return true;
  if (!account::admit(place, params->bytes, api)) return false;
  account::gate().cancel(place, params->bytes);
  watchGraphs(place);
  return true;
}

bool paramsFit(const GraphNodeParams* params, const char* api) {
  return params == nullptr || params->type != kGraphNodeMemAlloc || nodeFits(&params->alloc, api);
}

Result seen(Result result) {
  if (account::gate().attached()) {
    for (Place place = 1; place < static_cast<Place>(kDevices); ++place) {
      if (account::ordinalOf(place) >= 0) refreshPools(place);
    }
  }
  return result;
}

OOMTUNE_HOOK(cuGraphAddMemAllocNode, GraphNode* node, Graph graph, const GraphNode* needs, size_t count,
             MemAllocNodeParams* params) {
  if (!nodeFits(params, "cuGraphAddMemAllocNode")) return kOutOfMemory;
  return cuGraphAddMemAllocNode_real(node, graph, needs, count, params);
}

OOMTUNE_HOOK(cuGraphAddNode, GraphNode* node, Graph graph, const GraphNode* needs, size_t count,
             GraphNodeParams* params) {
  if (!paramsFit(params, "cuGraphAddNode")) return kOutOfMemory;
  return cuGraphAddNode_real(node, graph, needs, count, params);
}

OOMTUNE_HOOK(cuGraphAddNode_v2, GraphNode* node, Graph graph, const GraphNode* needs, const void* edges, size_t count,
             GraphNodeParams* params) {
  if (!paramsFit(params, "cuGraphAddNode_v2")) return kOutOfMemory;
  return cuGraphAddNode_v2_real(node, graph, needs, edges, count, params);
}

OOMTUNE_HOOK(cuGraphAddNode_v3, GraphNode* node, Graph graph, const GraphNode* needs, const void* edges, size_t count,
             GraphNodeParams* params) {
  if (!paramsFit(params, "cuGraphAddNode_v3")) return kOutOfMemory;
  return cuGraphAddNode_v3_real(node, graph, needs, edges, count, params);
}

// The forms of CUDA 10 and 11, before there were flags.
OOMTUNE_HOOK(cuGraphInstantiate, GraphExec* exec, Graph graph, GraphNode* failed, char* log, size_t size) {
  return seen(cuGraphInstantiate_real(exec, graph, failed, log, size));
}

OOMTUNE_HOOK(cuGraphInstantiate_v2, GraphExec* exec, Graph graph, GraphNode* failed, char* log, size_t size) {
  return seen(cuGraphInstantiate_v2_real(exec, graph, failed, log, size));
}

OOMTUNE_HOOK(cuGraphInstantiateWithFlags, GraphExec* exec, Graph graph, unsigned long long flags) {
  return seen(cuGraphInstantiateWithFlags_real(exec, graph, flags));
}

OOMTUNE_HOOK(cuGraphInstantiateWithParams, GraphExec* exec, Graph graph, void* params) {
  return seen(cuGraphInstantiateWithParams_real(exec, graph, params));
}

OOMTUNE_HOOK(cuGraphInstantiateWithParams_ptsz, GraphExec* exec, Graph graph, void* params) {
  return seen(cuGraphInstantiateWithParams_ptsz_real(exec, graph, params));
}

OOMTUNE_HOOK(cuGraphUpload, GraphExec exec, Stream stream) { return seen(cuGraphUpload_real(exec, stream)); }

OOMTUNE_HOOK(cuGraphUpload_ptsz, GraphExec exec, Stream stream) { return seen(cuGraphUpload_ptsz_real(exec, stream)); }

OOMTUNE_HOOK(cuGraphExecDestroy, GraphExec exec) { return seen(cuGraphExecDestroy_real(exec)); }

OOMTUNE_HOOK(cuDeviceGraphMemTrim, Device device) { return seen(cuDeviceGraphMemTrim_real(device)); }

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuGraphAddMemAllocNode),
    OOMTUNE_HOOKED(cuGraphAddNode),
    OOMTUNE_HOOKED(cuGraphAddNode_v2),
    OOMTUNE_HOOKED(cuGraphAddNode_v3),
    OOMTUNE_HOOKED(cuGraphInstantiate),
    OOMTUNE_HOOKED(cuGraphInstantiate_v2),
    OOMTUNE_HOOKED(cuGraphInstantiateWithFlags),
    OOMTUNE_HOOKED(cuGraphInstantiateWithParams),
    OOMTUNE_HOOKED(cuGraphInstantiateWithParams_ptsz),
    OOMTUNE_HOOKED(cuGraphUpload),
    OOMTUNE_HOOKED(cuGraphUpload_ptsz),
    OOMTUNE_HOOKED(cuGraphExecDestroy),
    OOMTUNE_HOOKED(cuDeviceGraphMemTrim),
};

}  // namespace

extern const HookList kGraphHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
