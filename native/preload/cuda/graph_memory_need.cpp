#include "graph_memory_need.h"

#include <sys/mman.h>

#include "driver_calls.h"
#include "hash_table.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

constexpr int kDeepest = 8;  // graphs in graphs

struct Held {
  uint64_t bytes;
  DeviceIndex deviceIndex;
};

/** Arrays for one walk over a graph, from mmap, as the walk runs inside the job's calls. */
class Arrays {
 public:
  explicit Arrays(size_t bytes) : size_(bytes + 4096) {
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at_ = begin_ = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  }
  ~Arrays() {
    if (begin_ != nullptr) munmap(begin_, size_);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  bool there() const { return begin_ != nullptr; }

  template <class Value>
  Value* take(size_t count) {
    Value* taken = reinterpret_cast<Value*>(at_);
    at_ += (count * sizeof(Value) + 15) & ~size_t{15};
    return taken;
  }

 private:
  size_t size_;
  char* begin_;
  char* at_;
};

/**
 * Walks a graph in an order that its edges allow, and frees as late as they allow. Allocations that are held at the
 * same moment of this order are unordered among themselves, so that no driver can give two of them the same memory. So
 * the peak is needed; in a chain of nodes, as captured ones are, it is also sufficient.
 */
class Walk {
 public:
  explicit Walk(GraphNeed* need) : need_(need) {}
  ~Walk() { held_.clear(); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  bool through(Graph graph, int depth);

 private:
  bool pass(GraphNode node, int type, int depth);
  uint64_t freedBy(GraphNode node, Address* address);

  GraphNeed* need_;
  uint64_t live_[kDevices] = {};
  HashTable<Held> held_;  // by address
};

uint64_t Walk::freedBy(GraphNode node, Address* address) {
  Held held{};
  if (driver.graphMemFreeNodeGetParams(node, address) != kSuccess || !held_.get(*address, &held)) return 0;
  return held.bytes;
}

bool Walk::pass(GraphNode node, int type, int depth) {
  if (type == kGraphNodeMemAlloc) {
    MemAllocNodeParams params{};
    if (driver.graphMemAllocNodeGetParams(node, &params) != kSuccess) return false;
    const DeviceIndex deviceIndex = account::deviceIndexOf(params.pool.location);
    if (deviceIndex < 0) return true;
    live_[deviceIndex] += params.bytes;
    if (live_[deviceIndex] > need_->bytes[deviceIndex]) need_->bytes[deviceIndex] = live_[deviceIndex];
    return held_.put(params.address, Held{params.bytes, deviceIndex});
  }
  if (type == kGraphNodeMemFree) {
    Address address = 0;
    Held held{};
    if (freedBy(node, &address) != 0 && held_.take(address, &held)) live_[held.deviceIndex] -= held.bytes;
    return true;
  }
  Graph child = nullptr;
  return driver.graphChildGetGraph(node, &child) == kSuccess && through(child, depth + 1);
}

Result edgesOf(Graph graph, GraphNode* from, GraphNode* to, void* data, size_t* count) {
  if (driver.graphGetEdgesV2 != nullptr) return driver.graphGetEdgesV2(graph, from, to, data, count);
  return driver.graphGetEdges(graph, from, to, count);
}

bool Walk::through(Graph graph, int depth) {
  size_t count = 0;
  size_t edges = 0;
  if (depth > kDeepest || driver.graphGetNodes(graph, nullptr, &count) != kSuccess) return false;
  if (edgesOf(graph, nullptr, nullptr, nullptr, &edges) != kSuccess || count > UINT32_MAX || edges > UINT32_MAX) {
    return false;
  }
  Arrays arrays(count * 40 + edges * 40 + 256);
  if (!arrays.there()) return false;
  auto* nodes = arrays.take<GraphNode>(count);
  auto* types = arrays.take<int>(count);
  auto* waits = arrays.take<uint32_t>(count);  // for how many others
  auto* first = arrays.take<uint32_t>(count + 1);
  auto* ready = arrays.take<uint32_t>(count);
  auto* frees = arrays.take<uint32_t>(count);  // ready too, but put off
  auto* from = arrays.take<GraphNode>(edges);
  auto* to = arrays.take<GraphNode>(edges);
  auto* next = arrays.take<uint32_t>(edges);
  auto* data = arrays.take<uint64_t>(edges);  // a CUgraphEdgeData each
  if (driver.graphGetNodes(graph, nodes, &count) != kSuccess) return false;
  bool interesting = false;
  for (size_t i = 0; i < count; ++i) {
    if (driver.graphNodeGetType(nodes[i], &types[i]) != kSuccess) return false;
    interesting =
        interesting || types[i] == kGraphNodeMemAlloc || types[i] == kGraphNodeMemFree || types[i] == kGraphNodeChild;
  }
  if (!interesting) return true;
  if (edgesOf(graph, from, to, data, &edges) != kSuccess) return false;

  HashTable<uint32_t> deviceIndices;
  bool known = true;
  for (size_t i = 0; i < count; ++i) known = known && deviceIndices.put(reinterpret_cast<uint64_t>(nodes[i]), i);
  auto indexOf = [&deviceIndices, &known](GraphNode node) {
    uint32_t index = 0;
    known = known && deviceIndices.get(reinterpret_cast<uint64_t>(node), &index);
    return index;
  };
  for (size_t i = 0; i < edges; ++i) ++first[indexOf(from[i])];
  for (uint32_t i = 0, at = 0; i <= count; ++i) {
    const uint32_t own = i < count ? first[i] : 0;
    first[i] = at += own;  // one past its own; filling them in turns that into the first
  }
  for (size_t i = 0; i < edges; ++i) {
    const uint32_t successor = indexOf(to[i]);
    next[--first[indexOf(from[i])]] = successor;
    ++waits[successor];
  }
  deviceIndices.clear();
  if (!known) return false;

  size_t readyCount = 0;
  size_t freeCount = 0;
  auto begin = [&](uint32_t index) {
    if (types[index] == kGraphNodeMemFree) frees[freeCount++] = index;
    else ready[readyCount++] = index;
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (waits[i] == 0) begin(i);
  }
  while (readyCount + freeCount > 0) {
    uint32_t index = 0;
    if (readyCount > 0) {
      index = ready[--readyCount];
    } else {  // the smallest first
      size_t least = 0;
      uint64_t leastBytes = UINT64_MAX;
      for (size_t i = 0; i < freeCount && leastBytes != 0; ++i) {
        Address address = 0;
        const uint64_t bytes = freeCount == 1 ? 0 : freedBy(nodes[frees[i]], &address);
        if (bytes < leastBytes) least = i, leastBytes = bytes;
      }
      index = frees[least];
      frees[least] = frees[--freeCount];
    }
    const int type = types[index];
    if (type == kGraphNodeMemAlloc || type == kGraphNodeMemFree || type == kGraphNodeChild) {
      if (!pass(nodes[index], type, depth)) return false;
    }
    for (uint32_t i = first[index]; i < first[index + 1]; ++i) {
      if (--waits[next[i]] == 0) begin(next[i]);
    }
  }
  return true;
}

bool driverTells() {
  return driver.graphGetNodes != nullptr && driver.graphNodeGetType != nullptr &&
         driver.graphMemAllocNodeGetParams != nullptr && driver.graphMemFreeNodeGetParams != nullptr &&
         driver.graphChildGetGraph != nullptr && (driver.graphGetEdgesV2 != nullptr || driver.graphGetEdges != nullptr);
}

}  // namespace

bool needOf(Graph graph, GraphNeed* out) {
  *out = GraphNeed{};
  if (!driverTells()) return false;
  if (!Walk(out).through(graph, 0)) {
    account::markBlind(kBlindHook);
    return false;
  }
  for (const uint64_t bytes : out->bytes) {
    if (bytes != 0) return true;
  }
  return false;
}

}  // namespace oomtune::cuda
