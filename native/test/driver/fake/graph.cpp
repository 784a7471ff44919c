// Graphs: memory nodes take what they need when a graph is uploaded.
#include "card.h"

using namespace fake;

namespace fake {

namespace {

uint64_t reserved[kDevices];
uint64_t pending[kDevices];

}  // namespace

void addGraphMemory(int device, uint64_t bytes) { pending[device] += bytes; }

}  // namespace fake

API cuGraphAddMemAllocNode(GraphNode* node, Graph, const GraphNode*, size_t, MemAllocNodeParams* params) {
  std::lock_guard<std::mutex> lock(mutex);
  if (params->pool.location.type == kLocationDevice) addGraphMemory(params->pool.location.id, rounded(params->bytes));
  params->address = newName(params->bytes);
  *node = reinterpret_cast<GraphNode>(newName(1));
  return 0;
}
#ifndef FAKE_OLD
API cuGraphAddNode(GraphNode* node, Graph graph, const GraphNode* needs, size_t count, GraphNodeParams* params) {
  if (params->type == kGraphNodeMemAlloc) return cuGraphAddMemAllocNode(node, graph, needs, count, &params->alloc);
  return 0;
}
API cuGraphAddNode_v2(GraphNode* node, Graph graph, const GraphNode* needs, const void*, size_t count,
                      GraphNodeParams* params) {
  return cuGraphAddNode(node, graph, needs, count, params);
}
API cuGraphAddNode_v3(GraphNode* node, Graph graph, const GraphNode* needs, const void*, size_t count,
                      GraphNodeParams* params) {
  return cuGraphAddNode(node, graph, needs, count, params);
}
#endif
API cuGraphInstantiate(GraphExec* exec, Graph, GraphNode*, char*, size_t) {
  *exec = reinterpret_cast<GraphExec>(newName(1));
  return 0;
}
API cuGraphInstantiate_v2(GraphExec* exec, Graph graph, GraphNode* failed, char* log, size_t size) {
  return cuGraphInstantiate(exec, graph, failed, log, size);
}
API cuGraphInstantiateWithFlags(GraphExec* exec, Graph, unsigned long long) {
  *exec = reinterpret_cast<GraphExec>(newName(1));
  return 0;
}
API cuGraphInstantiateWithParams(GraphExec* exec, Graph graph, void*) {
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
API cuGraphInstantiateWithParams_ptsz(GraphExec* exec, Graph graph, void*) {
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
API cuGraphUpload(GraphExec, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  for (int device = 0; device < deviceCount(); ++device) {
    if (!take(device, static_cast<int64_t>(pending[device]))) return 2;
    reserved[device] += pending[device];
    pending[device] = 0;
  }
  return 0;
}
API cuGraphUpload_ptsz(GraphExec exec, Stream stream) { return cuGraphUpload(exec, stream); }
API cuGraphExecDestroy(GraphExec) { return 0; }
API cuDeviceGraphMemTrim(Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  take(device, -static_cast<int64_t>(reserved[device]));
  reserved[device] = 0;
  return 0;
}
API cuDeviceGetGraphMemAttribute(Device device, int, void* value) {
  UNSAFE_IN_CAPTURE();
  std::lock_guard<std::mutex> lock(mutex);
  *static_cast<uint64_t*>(value) = reserved[device];
  return 0;
}
