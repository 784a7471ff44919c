// Graphs: what their memory nodes need is taken when a graph is uploaded or launched, and kept until it is trimmed. Two
// nodes share memory only where the graph says that the one is freed before the other is made.
#include <algorithm>
#include <vector>

#include "card.h"

using namespace fake;

namespace fake {

namespace {

struct Node {
  int type = 0;
  int device = -1;
  uint64_t bytes = 0;
  Address address = 0;
  Graph child = nullptr;
};

struct Layout {
  std::vector<GraphNode> nodes;
  std::vector<std::pair<GraphNode, GraphNode>> edges;
};

std::map<GraphNode, Node> nodes;
std::map<Graph, Layout> graphs;
std::map<GraphExec, std::vector<uint64_t>> execs;  // bytes by device
uint64_t reserved[kDevices];
thread_local Graph captured = nullptr;

Graph newGraph() {
  const Graph graph = reinterpret_cast<Graph>(newName(1));
  graphs[graph];
  return graph;
}

GraphNode addNode(Graph graph, const Node& node, const GraphNode* needs, size_t count) {
  const GraphNode made = reinterpret_cast<GraphNode>(newName(1));
  nodes[made] = node;
  Layout& layout = graphs[graph];
  layout.nodes.push_back(made);
  for (size_t i = 0; i < count; ++i) layout.edges.push_back({needs[i], made});
  return made;
}

/** After what was captured before: one stream. */
void captureNode(const Node& node) {
  const Layout& layout = graphs[captured];
  const std::vector<GraphNode> last(layout.nodes.end() - (layout.nodes.empty() ? 0 : 1), layout.nodes.end());
  addNode(captured, node, last.data(), last.size());
}

/** Nodes of a graph and of those in it, and which come before which. */
struct Flat {
  std::vector<Node> nodes;
  std::vector<std::vector<bool>> before;
};

using Ends = std::pair<std::vector<size_t>, std::vector<size_t>>;  // roots and leaves

Ends flatten(Graph graph, std::vector<Node>* out, std::vector<std::pair<size_t, size_t>>* edges) {
  std::map<GraphNode, Ends> ends;
  Ends all;
  Layout& layout = graphs[graph];
  for (GraphNode node : layout.nodes) {
    if (nodes[node].child != nullptr) {
      ends[node] = flatten(nodes[node].child, out, edges);
    } else {
      ends[node] = {{out->size()}, {out->size()}};
      out->push_back(nodes[node]);
    }
    const bool root = std::none_of(layout.edges.begin(), layout.edges.end(), [=](auto& e) { return e.second == node; });
    const bool leaf = std::none_of(layout.edges.begin(), layout.edges.end(), [=](auto& e) { return e.first == node; });
    if (root) all.first.insert(all.first.end(), ends[node].first.begin(), ends[node].first.end());
    if (leaf) all.second.insert(all.second.end(), ends[node].second.begin(), ends[node].second.end());
  }
  for (auto [from, to] : layout.edges) {
    for (size_t a : ends[from].second) {
      for (size_t b : ends[to].first) edges->push_back({a, b});
    }
  }
  return all;
}

Flat flat(Graph graph) {
  Flat result;
  std::vector<std::pair<size_t, size_t>> edges;
  flatten(graph, &result.nodes, &edges);
  const size_t count = result.nodes.size();
  result.before.assign(count, std::vector<bool>(count));
  for (auto [a, b] : edges) result.before[a][b] = true;
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        if (result.before[i][k] && result.before[k][j]) result.before[i][j] = true;
      }
    }
  }
  return result;
}

/** The heaviest set of allocations of which none can take the place of another, found by trying them all. */
uint64_t needOf(const Flat& graph, int device) {
  std::vector<size_t> allocs;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].type == kGraphNodeMemAlloc && graph.nodes[i].device == device) allocs.push_back(i);
  }
  if (allocs.size() > 16) abort();
  auto freedBefore = [&](size_t a, size_t b) {
    for (size_t f = 0; f < graph.nodes.size(); ++f) {
      const Node& node = graph.nodes[f];
      if (node.type == kGraphNodeMemFree && node.address == graph.nodes[a].address && graph.before[f][b]) return true;
    }
    return false;
  };
  uint64_t most = 0;
  for (uint32_t set = 0; set < 1u << allocs.size(); ++set) {
    uint64_t sum = 0;
    bool together = true;
    for (size_t i = 0; i < allocs.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      sum += rounded(graph.nodes[allocs[i]].bytes);
      for (size_t j = 0; j < allocs.size(); ++j) {
        if ((set >> j & 1) != 0 && freedBefore(allocs[i], allocs[j])) together = false;
      }
    }
    if (together) most = std::max(most, sum);
  }
  return most;
}

Result instantiated(GraphExec* exec, Graph graph) {
  std::lock_guard<std::mutex> lock(mutex);
  *exec = reinterpret_cast<GraphExec>(newName(1));
  const Flat nodes = flat(graph);
  for (int device = 0; device < deviceCount(); ++device) execs[*exec].push_back(needOf(nodes, device));
  return 0;
}

}  // namespace

void beginGraph() {
  std::lock_guard<std::mutex> lock(mutex);
  captured = newGraph();
}

Graph endGraph() {
  const Graph graph = captured;
  captured = nullptr;
  return graph;
}

Address captureAllocation(int device, uint64_t bytes) {
  const Address address = newName(bytes);
  captureNode(Node{kGraphNodeMemAlloc, device, bytes, address, nullptr});
  return address;
}

void captureFree(Address address) { captureNode(Node{kGraphNodeMemFree, -1, 0, address, nullptr}); }

}  // namespace fake

API cuGraphCreate(Graph* graph, unsigned int) {
  std::lock_guard<std::mutex> lock(mutex);
  return *graph = newGraph(), 0;
}
API cuGraphAddMemAllocNode(GraphNode* node, Graph graph, const GraphNode* needs, size_t count,
                           MemAllocNodeParams* params) {
  std::lock_guard<std::mutex> lock(mutex);
  params->address = newName(params->bytes);
  const int device = params->pool.location.type == kLocationDevice ? params->pool.location.id : -1;
  *node = addNode(graph, Node{kGraphNodeMemAlloc, device, params->bytes, params->address, nullptr}, needs, count);
  return 0;
}
API cuGraphAddMemFreeNode(GraphNode* node, Graph graph, const GraphNode* needs, size_t count, Address address) {
  std::lock_guard<std::mutex> lock(mutex);
  *node = addNode(graph, Node{kGraphNodeMemFree, -1, 0, address, nullptr}, needs, count);
  return 0;
}
API cuGraphAddEmptyNode(GraphNode* node, Graph graph, const GraphNode* needs, size_t count) {
  std::lock_guard<std::mutex> lock(mutex);
  constexpr int kEmpty = 5;
  *node = addNode(graph, Node{kEmpty, -1, 0, 0, nullptr}, needs, count);
  return 0;
}
API cuGraphAddChildGraphNode(GraphNode* node, Graph graph, const GraphNode* needs, size_t count, Graph child) {
  std::lock_guard<std::mutex> lock(mutex);
  *node = addNode(graph, Node{kGraphNodeChild, -1, 0, 0, child}, needs, count);
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
API cuGraphGetNodes(Graph graph, GraphNode* out, size_t* count) {
  std::lock_guard<std::mutex> lock(mutex);
  const Layout& layout = graphs[graph];
  if (out != nullptr) std::copy_n(layout.nodes.begin(), std::min(*count, layout.nodes.size()), out);
  return *count = layout.nodes.size(), 0;
}
API cuGraphGetEdges(Graph graph, GraphNode* from, GraphNode* to, size_t* count) {
  std::lock_guard<std::mutex> lock(mutex);
  const Layout& layout = graphs[graph];
  for (size_t i = 0; from != nullptr && i < *count && i < layout.edges.size(); ++i) {
    from[i] = layout.edges[i].first;
    to[i] = layout.edges[i].second;
  }
  return *count = layout.edges.size(), 0;
}
#ifndef FAKE_OLD
API cuGraphGetEdges_v2(Graph graph, GraphNode* from, GraphNode* to, void* data, size_t* count) {
  if (data != nullptr) memset(data, 0, 8 * *count);
  return cuGraphGetEdges(graph, from, to, count);
}
#endif
API cuGraphNodeGetType(GraphNode node, int* type) {
  std::lock_guard<std::mutex> lock(mutex);
  return *type = nodes[node].type, 0;
}
API cuGraphMemAllocNodeGetParams(GraphNode node, MemAllocNodeParams* params) {
  std::lock_guard<std::mutex> lock(mutex);
  *params = MemAllocNodeParams{};
  params->pool.location = Location{kLocationDevice, nodes[node].device};
  params->bytes = nodes[node].bytes;
  params->address = nodes[node].address;
  return 0;
}
API cuGraphMemFreeNodeGetParams(GraphNode node, Address* address) {
  std::lock_guard<std::mutex> lock(mutex);
  return *address = nodes[node].address, 0;
}
API cuGraphChildGraphNodeGetGraph(GraphNode node, Graph* child) {
  std::lock_guard<std::mutex> lock(mutex);
  return *child = nodes[node].child, 0;
}
API cuGraphInstantiate(GraphExec* exec, Graph graph, GraphNode*, char*, size_t) { return instantiated(exec, graph); }
API cuGraphInstantiate_v2(GraphExec* exec, Graph graph, GraphNode*, char*, size_t) { return instantiated(exec, graph); }
API cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) { return instantiated(exec, graph); }
API cuGraphInstantiateWithParams(GraphExec* exec, Graph graph, void*) { return instantiated(exec, graph); }
API cuGraphInstantiateWithParams_ptsz(GraphExec* exec, Graph graph, void*) { return instantiated(exec, graph); }
API cuGraphUpload(GraphExec exec, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = execs.find(exec);
  if (found == execs.end()) return 1;
  for (int device = 0; device < deviceCount(); ++device) {
    const uint64_t need = found->second[device];
    if (need <= reserved[device]) continue;
    if (!take(device, static_cast<int64_t>(need - reserved[device]))) return 2;
    reserved[device] = need;
  }
  return 0;
}
API cuGraphUpload_ptsz(GraphExec exec, Stream stream) { return cuGraphUpload(exec, stream); }
API cuGraphLaunch(GraphExec exec, Stream stream) { return cuGraphUpload(exec, stream); }
API cuGraphLaunch_ptsz(GraphExec exec, Stream stream) { return cuGraphUpload(exec, stream); }
API cuGraphExecDestroy(GraphExec exec) {
  FAULT("cuGraphExecDestroy");
  std::lock_guard<std::mutex> lock(mutex);
  return execs.erase(exec) == 1 ? 0 : 1;
}
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
