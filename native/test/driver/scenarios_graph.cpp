// Memory nodes of graphs: each by itself, and all that a graph holds at once.
#include <initializer_list>
#include <vector>

#include "scenarios.h"

namespace {

using Nodes = std::vector<GraphNode>;

Graph newGraph() {
  Graph graph = nullptr;
  CHECK_EQUAL((call<Result(Graph*, unsigned)>("cuGraphCreate", &graph, 0u)), 0);
  return graph;
}

struct Made {
  GraphNode node;
  Address address;
};

Made addAlloc(Graph graph, uint64_t bytes, const Nodes& needs = {}) {
  MemAllocNodeParams params{};
  params.pool.location = Location{kLocationDevice, 0};
  params.bytes = bytes;
  GraphNode node = nullptr;
  using Add = Result(GraphNode*, Graph, const GraphNode*, size_t, MemAllocNodeParams*);
  CHECK_EQUAL((call<Add>("cuGraphAddMemAllocNode", &node, graph, needs.data(), needs.size(), &params)), 0);
  return {node, params.address};
}

GraphNode addFree(Graph graph, const Made& made, const Nodes& needs = {}) {
  Nodes all = needs;
  all.push_back(made.node);
  GraphNode node = nullptr;
  using Add = Result(GraphNode*, Graph, const GraphNode*, size_t, Address);
  CHECK_EQUAL((call<Add>("cuGraphAddMemFreeNode", &node, graph, all.data(), all.size(), made.address)), 0);
  return node;
}

GraphNode addEmpty(Graph graph, const Nodes& needs) {
  GraphNode node = nullptr;
  using Add = Result(GraphNode*, Graph, const GraphNode*, size_t);
  CHECK_EQUAL((call<Add>("cuGraphAddEmptyNode", &node, graph, needs.data(), needs.size())), 0);
  return node;
}

GraphNode addChild(Graph graph, Graph child, const Nodes& needs = {}) {
  GraphNode node = nullptr;
  using Add = Result(GraphNode*, Graph, const GraphNode*, size_t, Graph);
  CHECK_EQUAL((call<Add>("cuGraphAddChildGraphNode", &node, graph, needs.data(), needs.size(), child)), 0);
  return node;
}

Result instantiate(Graph graph, GraphExec* exec) {
  return call<Result(GraphExec*, Graph, unsigned long long)>("cuGraphInstantiateWithFlags", exec, graph, 0ULL);
}
Result launch(GraphExec exec) { return call<Result(GraphExec, Stream)>("cuGraphLaunch", exec, Stream{}); }
Result destroy(GraphExec exec) { return call<Result(GraphExec)>("cuGraphExecDestroy", exec); }
Result trim() { return call<Result(Device)>("cuDeviceGraphMemTrim", 0); }

/** Takes what it needs, to the byte, and gives it back. */
void needs(Graph graph, uint64_t bytes) {
  GraphExec exec = nullptr;
  CHECK_EQUAL(instantiate(graph, &exec), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 0);
  CHECK_EQUAL(launch(exec), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), bytes);
  CHECK_EQUAL(destroy(exec), 0);
  CHECK_EQUAL(trim(), 0);
  CHECK_EQUAL(committed(), 100 * MiB);
}

void refused(Graph graph, uint64_t calls) {
  GraphExec exec = nullptr;
  CHECK_EQUAL(instantiate(graph, &exec), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), calls);
  CHECK_EQUAL(committed(), 100 * MiB);
}

}  // namespace

void scenarioGraphs() {
  begin();
  const Graph graph = newGraph();
  MemAllocNodeParams params{};
  params.pool.location = Location{kLocationDevice, 0};
  params.bytes = 64 * MiB;
  GraphNode node = nullptr;
  GraphExec exec = nullptr;
  using AddAlloc = Result(GraphNode*, Graph, const GraphNode*, size_t, MemAllocNodeParams*);
  const GraphNode* none = nullptr;
  CHECK_EQUAL((call<AddAlloc>("cuGraphAddMemAllocNode", &node, graph, none, size_t{0}, &params)), 0);
  GraphNodeParams general{};
  general.type = kGraphNodeMemAlloc;
  general.alloc = params;
  using AddNode = Result(GraphNode*, Graph, const GraphNode*, const void*, size_t, GraphNodeParams*);
  const void* noEdges = nullptr;
  CHECK_EQUAL((call<AddNode>("cuGraphAddNode_v2", &node, graph, none, noEdges, size_t{0}, &general)), 0);
  CHECK_EQUAL(instantiate(graph, &exec), 0);
  for (const char* form : {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"}) {
    void* none = nullptr;
    CHECK_EQUAL((call<Result(GraphExec*, Graph, void*)>(form, &exec, graph, none)), 0);
  }
  for (const char* form : {"cuGraphInstantiate", "cuGraphInstantiate_v2"}) {
    using Instantiate = Result(GraphExec*, Graph, GraphNode*, char*, size_t);
    GraphNode* failed = nullptr;
    char* log = nullptr;
    CHECK_EQUAL((call<Instantiate>(form, &exec, graph, failed, log, size_t{0})), 0);
  }
  CHECK_EQUAL(kind(oomtune::kGraph), 0);
  CHECK_EQUAL((call<Result(GraphExec, Stream)>("cuGraphUpload", exec, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 128 * MiB);
  // 284 MiB are left, and 128 MiB that other graphs may use.
  params.bytes = 414 * MiB;
  CHECK_EQUAL((call<AddAlloc>("cuGraphAddMemAllocNode", &node, graph, none, size_t{0}, &params)), kOutOfMemory);
  general.alloc.bytes = 414 * MiB;
  CHECK_EQUAL((call<AddNode>("cuGraphAddNode_v2", &node, graph, none, noEdges, size_t{0}, &general)), kOutOfMemory);
  CHECK_EQUAL((call<AddNode>("cuGraphAddNode_v3", &node, graph, none, noEdges, size_t{0}, &general)), kOutOfMemory);
  // The older form of the call, which a program of CUDA 12.2 asks for.
  using OlderNode = Result(GraphNode*, Graph, const GraphNode*, size_t, GraphNodeParams*);
  CHECK_EQUAL((call<OlderNode>("cuGraphAddNode", &node, graph, none, size_t{0}, &general)), kOutOfMemory);
  general.alloc.bytes = 16 * MiB;
  CHECK_EQUAL((call<OlderNode>("cuGraphAddNode", &node, graph, none, size_t{0}, &general)), 0);
  CHECK_EQUAL(destroy(exec), 0);
  CHECK_EQUAL(instantiate(graph, &exec), 0);
  CHECK_EQUAL((call<Result(GraphExec, Stream)>("cuGraphUpload_ptsz", exec, Stream{})), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 144 * MiB);
  CHECK_EQUAL(destroy(exec), 0);
  CHECK_EQUAL(trim(), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 0);
  CHECK_EQUAL(committed(), live());
}

void scenarioGraphSum() {  // nodes that fit one by one, and not together
  begin();
  const Graph together = newGraph();
  const Made first = addAlloc(together, 200 * MiB);
  const Made second = addAlloc(together, 200 * MiB, {first.node});
  const GraphNode over = addFree(together, first, {second.node});
  needs(together, 400 * MiB);
  addAlloc(together, 20 * MiB, {second.node});
  refused(together, 1);

  // One after the other they take the same place, however many they are.
  const Graph chain = newGraph();
  Nodes last;
  for (int i = 0; i < 8; ++i) {
    const Made made = addAlloc(chain, 300 * MiB, last);
    last = {addFree(chain, made)};
  }
  needs(chain, 300 * MiB);

  // Branches do not wait for each other: nothing can be shared between them.
  const Graph branches = newGraph();
  const GraphNode root = addEmpty(branches, {});
  for (int i = 0; i < 2; ++i) addFree(branches, addAlloc(branches, 200 * MiB, {root}));
  needs(branches, 400 * MiB);
  addFree(branches, addAlloc(branches, 200 * MiB, {root}));
  refused(branches, 2);

  // The second of one branch may meet the first of the other.
  const Graph crossing = newGraph();
  const Made small = addAlloc(crossing, 100 * MiB);
  const Made large = addAlloc(crossing, 300 * MiB, {addFree(crossing, small)});
  addFree(crossing, large);
  const Made otherLarge = addAlloc(crossing, 150 * MiB);
  addFree(crossing, addAlloc(crossing, 50 * MiB, {addFree(crossing, otherLarge)}));
  refused(crossing, 3);

  // A graph within the graph is part of its order.
  const Graph outer = newGraph();
  const Graph inner = newGraph();
  const Made within = addAlloc(inner, 200 * MiB);
  addFree(inner, within);
  const Made before = addAlloc(outer, 200 * MiB);
  const GraphNode child = addChild(outer, inner, {addFree(outer, before)});
  needs(outer, 200 * MiB);
  addAlloc(outer, 300 * MiB, {child});
  needs(outer, 300 * MiB);
  const Made beside = addAlloc(outer, 150 * MiB);
  addFree(outer, beside, {child});
  refused(outer, 4);
  (void)over;
}

void scenarioGraphLaunch() {  // what fitted when a graph was made is gone when it is launched
  begin();
  const Graph graph = newGraph();
  addFree(graph, addAlloc(graph, 200 * MiB));
  GraphExec exec = nullptr;
  Address rest = 0;
  CHECK_EQUAL(instantiate(graph, &exec), 0);
  CHECK_EQUAL(allocate(&rest, 300 * MiB), 0);
  CHECK_EQUAL(launch(exec), kOutOfMemory);
  CHECK_EQUAL((call<Result(GraphExec, Stream)>("cuGraphUpload", exec, Stream{})), kOutOfMemory);
  CHECK_EQUAL((call<Result(GraphExec, Stream)>("cuGraphLaunch_ptsz", exec, Stream{})), kOutOfMemory);
  CHECK_EQUAL(refusedCalls(), 3);
  CHECK_EQUAL(committed(), 400 * MiB);
  CHECK_EQUAL(release(rest), 0);
  CHECK_EQUAL(launch(exec), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 200 * MiB);
  // Its memory stays, and another graph uses it though nothing else is left.
  CHECK_EQUAL(allocate(&rest, 212 * MiB), 0);
  CHECK_EQUAL(committed(), 512 * MiB);
  const Graph other = newGraph();
  GraphExec otherExec = nullptr;
  addFree(other, addAlloc(other, 150 * MiB));
  CHECK_EQUAL(instantiate(other, &otherExec), 0);
  CHECK_EQUAL(launch(otherExec), 0);
  CHECK_EQUAL(launch(exec), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 200 * MiB);
  // Once it was trimmed, the next launch takes it anew.
  CHECK_EQUAL(trim(), 0);
  CHECK_EQUAL(kind(oomtune::kGraph), 0);
  Address taken = 0;
  CHECK_EQUAL(allocate(&taken, 150 * MiB), 0);
  CHECK_EQUAL(launch(exec), kOutOfMemory);
  CHECK_EQUAL(launch(otherExec), kOutOfMemory);
  CHECK_EQUAL(release(taken), 0);
  CHECK_EQUAL(launch(exec), 0);
  // One that the driver did not destroy is still known.
  CHECK(destroy(otherExec) != 0);
  CHECK_EQUAL(destroy(otherExec), 0);
  CHECK_EQUAL(destroy(exec), 0);
  CHECK_EQUAL(refusedCalls(), 5);
  CHECK_EQUAL(committed(), live());
}

void scenarioGraphCapture() {  // captured stream-ordered allocations become nodes too
  begin();
  using AllocAsync = Result(Address*, size_t, Stream);
  using FreeAsync = Result(Address, Stream);
  auto capture = [](int count, bool frees) {
    Graph graph = nullptr;
    CHECK_EQUAL((call<Result(Stream, int)>("cuStreamBeginCapture_v2", Stream{}, 0)), 0);
    for (int i = 0; i < count; ++i) {
      Address address = 0;
      CHECK_EQUAL((call<AllocAsync>("cuMemAllocAsync", &address, size_t{150 * MiB}, Stream{})), 0);
      if (frees) CHECK_EQUAL((call<FreeAsync>("cuMemFreeAsync", address, Stream{})), 0);
    }
    CHECK_EQUAL(kind(oomtune::kAsync), 0);
    CHECK_EQUAL((call<Result(Stream, Graph*)>("cuStreamEndCapture", Stream{}, &graph)), 0);
    return graph;
  };
  needs(capture(6, true), 150 * MiB);
  needs(capture(2, false), 300 * MiB);
  refused(capture(3, false), 1);
  CHECK_EQUAL(committed(), live());
}
