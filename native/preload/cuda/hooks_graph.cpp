// Memory nodes of graphs. Their memory is the device's graph memory, which the driver takes when a graph is uploaded or
// launched: what the nodes of a graph need together is looked at when it is instantiated, and again before the first
// launch after that or after the driver has given graph memory back.
#include "graph_hooks.h"

#include <atomic>

#include "admission.h"
#include "driver.h"
#include "graph_memory_need.h"
#include "hash_table.h"
#include "pools.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;
constexpr DeviceIndex kPlaces = static_cast<DeviceIndex>(kDevices);

/** An executable graph with memory nodes. */
struct Exec {
  GraphNeed need;
  uint64_t round;  // of trimming in which its memory was there; 0: it was not yet
};

HashTable<Exec> execs;
std::atomic<bool> anyNodes{false};
std::atomic<uint64_t> execCount{0};
std::atomic<uint64_t> trims{1};

uint64_t key(GraphExec exec) { return reinterpret_cast<uint64_t>(exec); }

/** What a graph needs, admitted as far as graphs have not reserved it already. */
class Promise {
 public:
  Promise(const GraphNeed& need, const char* api) {
    for (DeviceIndex deviceIndex = 1; deviceIndex < kPlaces && fits_; ++deviceIndex) {
      if (need.bytes[deviceIndex] == 0) continue;
      const uint64_t reserved = graphsReserved(deviceIndex);
      const uint64_t more = need.bytes[deviceIndex] > reserved ? need.bytes[deviceIndex] - reserved : 0;
      fits_ = account::admit(deviceIndex, more, api);
      if (fits_) promised_[deviceIndex] = more;
    }
  }
  ~Promise() {
    for (DeviceIndex deviceIndex = 1; deviceIndex < kPlaces; ++deviceIndex) {
      if (promised_[deviceIndex] != 0) countGraphs(deviceIndex, promised_[deviceIndex]);
    }
  }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;

  bool fits() const { return fits_; }

 private:
  uint64_t promised_[kDevices] = {};
  bool fits_ = true;
};

bool paramsFit(const GraphNodeParams* params, const char* api) {
  return params == nullptr || params->type != kGraphNodeMemAlloc || graphNodeFits(&params->alloc, api);
}

Result seen(Result result) {
  if (account::gate().attached()) {
    for (DeviceIndex deviceIndex = 1; deviceIndex < kPlaces; ++deviceIndex) {
      if (account::ordinalOf(deviceIndex) >= 0) refreshPools(deviceIndex);
    }
  }
  return result;
}

/** True: it was known. */
bool takeExec(GraphExec exec, Exec* out) {
  if (!execs.take(key(exec), out)) return false;
  execCount.fetch_sub(1);
  return true;
}

void keepExec(GraphExec exec, const Exec& made) {
  if (execs.put(key(exec), made)) execCount.fetch_add(1);
  else account::markBlind(kBlindHook);
}

template <class Call>
Result instantiate(GraphExec* exec, Graph graph, const char* api, Call call) {
  Exec made{};
  const bool needs = account::gate().attached() && anyNodes.load() && needOf(graph, &made.need);
  Result result = kSuccess;
  {
    Promise promise(made.need, api);
    if (!promise.fits()) return kOutOfMemory;
    account::DriverCall driverCallUnderWay;
    result = call();
  }
  if (result == kSuccess && exec != nullptr) {
    Exec stale{};  // one that a context took with it, under the same name
    takeExec(*exec, &stale);
    if (needs) keepExec(*exec, made);
  }
  return seen(result);
}

/** Around an upload or a launch. Once a graph has its memory, nothing is asked any more. */
template <class Call>
Result run(GraphExec graph, const char* api, Call call) {
  if (execCount.load(std::memory_order_relaxed) == 0) return call();
  Exec exec{};
  if (!execs.get(key(graph), &exec) || exec.round == trims.load()) return call();
  exec.round = trims.load();
  Result result = kSuccess;
  {
    Promise promise(exec.need, api);
    if (!promise.fits()) return kOutOfMemory;
    account::DriverCall driverCallUnderWay;
    result = call();
  }
  if (result == kSuccess) execs.put(key(graph), exec);
  return seen(result);
}

}  // namespace

bool graphNodeFits(DeviceIndex deviceIndex, uint64_t bytes, const char* api) {
  if (deviceIndex < 0 || !account::gate().attached()) return true;
  watchGraphs(deviceIndex);
  anyNodes.store(true);
  const uint64_t reserved = graphsReserved(deviceIndex);
  const uint64_t more = bytes > reserved ? bytes - reserved : 0;
  if (!account::admit(deviceIndex, more, api)) return false;
  account::gate().cancel(deviceIndex, more);
  return true;
}

bool graphNodeFits(const MemAllocNodeParams* params, const char* api) {
  return params == nullptr || graphNodeFits(account::deviceIndexOf(params->pool.location), params->bytes, api);
}

void forgetGraphs() {
  execs.forget();
  execCount.store(0);
}

namespace {

OOMTUNE_HOOK(cuGraphAddMemAllocNode, GraphNode* node, Graph graph, const GraphNode* needs, size_t count,
             MemAllocNodeParams* params) {
  if (!graphNodeFits(params, "cuGraphAddMemAllocNode")) return kOutOfMemory;
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
  return instantiate(exec, graph, "cuGraphInstantiate",
                     [=] { return cuGraphInstantiate_real(exec, graph, failed, log, size); });
}

OOMTUNE_HOOK(cuGraphInstantiate_v2, GraphExec* exec, Graph graph, GraphNode* failed, char* log, size_t size) {
  return instantiate(exec, graph, "cuGraphInstantiate_v2",
                     [=] { return cuGraphInstantiate_v2_real(exec, graph, failed, log, size); });
}

OOMTUNE_HOOK(cuGraphInstantiateWithFlags, GraphExec* exec, Graph graph, unsigned long long flags) {
  return instantiate(exec, graph, "cuGraphInstantiateWithFlags",
                     [=] { return cuGraphInstantiateWithFlags_real(exec, graph, flags); });
}

OOMTUNE_HOOK(cuGraphInstantiateWithParams, GraphExec* exec, Graph graph, void* params) {
  return instantiate(exec, graph, "cuGraphInstantiateWithParams",
                     [=] { return cuGraphInstantiateWithParams_real(exec, graph, params); });
}

OOMTUNE_HOOK(cuGraphInstantiateWithParams_ptsz, GraphExec* exec, Graph graph, void* params) {
  return instantiate(exec, graph, "cuGraphInstantiateWithParams_ptsz",
                     [=] { return cuGraphInstantiateWithParams_ptsz_real(exec, graph, params); });
}

OOMTUNE_HOOK(cuGraphUpload, GraphExec exec, Stream stream) {
  return run(exec, "cuGraphUpload", [=] { return cuGraphUpload_real(exec, stream); });
}

OOMTUNE_HOOK(cuGraphUpload_ptsz, GraphExec exec, Stream stream) {
  return run(exec, "cuGraphUpload_ptsz", [=] { return cuGraphUpload_ptsz_real(exec, stream); });
}

OOMTUNE_HOOK(cuGraphLaunch, GraphExec exec, Stream stream) {
  return run(exec, "cuGraphLaunch", [=] { return cuGraphLaunch_real(exec, stream); });
}

OOMTUNE_HOOK(cuGraphLaunch_ptsz, GraphExec exec, Stream stream) {
  return run(exec, "cuGraphLaunch_ptsz", [=] { return cuGraphLaunch_ptsz_real(exec, stream); });
}

// Taken out first: as soon as the driver has destroyed it, another thread may be given one of the same name.
OOMTUNE_HOOK(cuGraphExecDestroy, GraphExec exec) {
  Exec known{};
  const bool ours = takeExec(exec, &known);
  Result result = cuGraphExecDestroy_real(exec);
  if (ours && result != kSuccess) keepExec(exec, known);
  return seen(result);
}

OOMTUNE_HOOK(cuDeviceGraphMemTrim, Device device) {
  Result result = cuDeviceGraphMemTrim_real(device);
  trims.fetch_add(1);
  return seen(result);
}

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
    OOMTUNE_HOOKED(cuGraphLaunch),
    OOMTUNE_HOOKED(cuGraphLaunch_ptsz),
    OOMTUNE_HOOKED(cuGraphExecDestroy),
    OOMTUNE_HOOKED(cuDeviceGraphMemTrim),
};

}  // namespace

extern const HookList kGraphHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
