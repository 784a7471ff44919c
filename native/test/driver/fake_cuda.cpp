// A driver of no device: the part of the driver API that deals in memory, over a pretended card. Built three times: as
// a driver of today, as one that lacks newer functions (FAKE_OLD), and as one from the future (FAKE_NEW).
//
// FAKE_STATE     file that plays the hardware (shared by processes)   FAKE_CAPACITY  bytes of each device
// FAKE_COUNT     number of devices (1)                                FAKE_CONTEXT   bytes that a context takes (100 MiB)
// FAKE_FAIL      "cuMemAlloc_v2:3:719": the third call of that function answers 719
// FAKE_MODULE    bytes that cuModuleLoadData takes, unseen by any hook
// FAKE_PIECES    idle memory of pools cannot be used again      FAKE_LAG  milliseconds that NVML shows what was freed
#include <stdio.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fake_state.h"
#include "types.h"

using namespace oomtune::cuda;

#define API extern "C" __attribute__((visibility("default"))) Result

namespace {

struct Block {
  int device;
  uint64_t size;
  uint64_t context;
  uint64_t pages;  // bytes of the device that it really takes; small ones share
};

struct PoolState {
  int device = 0;
  uint64_t used = 0;
  uint64_t reserved = 0;
};

struct Physical {
  int device;
  uint64_t size;
  int references;
  int mappings;
};

std::mutex mutex;
std::map<Address, Block> blocks;
std::map<Address, Block> arrayBlocks;
std::map<void*, size_t> hostBlocks;
std::map<Address, std::pair<uint64_t, PoolState*>> asyncBlocks;
std::map<Handle, Physical> physicals;
std::map<Address, std::pair<uint64_t, Handle>> mappings;
std::set<Address> foreign;
std::map<uint64_t, int> contexts;
uint64_t smallBytes[fake::kDevices];
uint64_t smallPages[fake::kDevices];
uint64_t primary[fake::kDevices];
int primaryCount[fake::kDevices];
PoolState defaultPools[fake::kDevices];
PoolState* currentPools[fake::kDevices];
uint64_t graphReserved[fake::kDevices];
uint64_t graphPending[fake::kDevices];
std::atomic<uint64_t> nextName{0x7f0000000000ULL};
thread_local uint64_t current = 0;
thread_local bool capturing = false;
bool initialised = false;

int deviceCount() { return static_cast<int>(fake::number("FAKE_COUNT", 1)); }

/** Takes or gives back bytes of a device for this process. False: the card is full. */
bool take(int device, int64_t bytes) {
  fake::Locked state;
  if (bytes < 0) {
    // FAKE_LAG: for that many milliseconds NVML still shows as used what was freed.
    state.mine().ghost[device] = static_cast<uint64_t>(-bytes);
    state.mine().ghostUntil = fake::now() + fake::number("FAKE_LAG", 0);
  }
  if (bytes > 0 && state.used(device) + static_cast<uint64_t>(bytes) > state->capacity) return false;
  state.mine().bytes[device] += static_cast<uint64_t>(bytes);
  return true;
}

uint64_t rounded(uint64_t size) { return (size + fake::kPage - 1) / fake::kPage * fake::kPage; }

uint64_t newName(uint64_t size) { return nextName.fetch_add(rounded(size) + fake::kPage); }

bool currentDevice(int* device) {
  auto found = contexts.find(current);
  if (found == contexts.end()) return false;
  *device = found->second;
  return true;
}

/** An injected fault: "name:n:result". */
Result fault(const char* name) {
  static std::map<std::string, int> calls;
  const char* text = getenv("FAKE_FAIL");
  if (text == nullptr) return 0;
  std::string wanted = text;
  size_t first = wanted.find(':');
  size_t second = wanted.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos || wanted.substr(0, first) != name) return 0;
  static std::mutex counting;
  std::lock_guard<std::mutex> lock(counting);
  return ++calls[name] == atoi(wanted.c_str() + first + 1) ? atoi(wanted.c_str() + second + 1) : 0;
}

#define FAULT(name) \
  if (Result injected = fault(name); injected != 0) return injected

Result allocate(int device, uint64_t size, Block* out) {
  *out = Block{device, size, current, 0};
  if (size > (1 << 20)) {
    out->pages = rounded(size);
    return take(device, static_cast<int64_t>(out->pages)) ? 0 : 2;
  }
  if (smallBytes[device] + size > smallPages[device]) {
    if (!take(device, static_cast<int64_t>(fake::kPage))) return 2;
    smallPages[device] += fake::kPage;
  }
  smallBytes[device] += size;
  return 0;
}

void giveBack(const Block& block) {
  if (block.pages != 0) {
    take(block.device, -static_cast<int64_t>(block.pages));
    return;
  }
  smallBytes[block.device] -= block.size;
  if (smallBytes[block.device] == 0) {
    take(block.device, -static_cast<int64_t>(smallPages[block.device]));
    smallPages[block.device] = 0;
  }
}

Result createContext(int device, uint64_t* out) {
  if (device < 0 || device >= deviceCount()) return 101;
  if (!take(device, static_cast<int64_t>(fake::number("FAKE_CONTEXT", 100 << 20)))) return 2;
  *out = newName(1);
  contexts[*out] = device;
  return 0;
}

void destroyContext(uint64_t context) {
  for (auto* all : {&blocks, &arrayBlocks}) {
    for (auto at = all->begin(); at != all->end();) {
      if (at->second.context != context) {
        ++at;
        continue;
      }
      giveBack(at->second);
      at = all->erase(at);
    }
  }
  take(contexts[context], -static_cast<int64_t>(fake::number("FAKE_CONTEXT", 100 << 20)));
  contexts.erase(context);
  if (current == context) current = 0;
}

Result allocateFrom(PoolState* pool, Address* address, size_t size) {
  if (capturing) {
    graphPending[pool->device] += rounded(size);
    *address = newName(size);
    return 0;
  }
  // FAKE_PIECES: what is idle in a pool lies in pieces that are of no use for anything new.
  const bool pieces = getenv("FAKE_PIECES") != nullptr;
  if (pieces || pool->used + size > pool->reserved) {
    uint64_t need = pieces ? size : pool->used + size - pool->reserved;
    uint64_t grow = (need + (32 << 20) - 1) / (32 << 20) * (32 << 20);
    if (!take(pool->device, static_cast<int64_t>(grow))) return 2;
    pool->reserved += grow;
  }
  pool->used += size;
  *address = newName(size);
  asyncBlocks[*address] = {size, pool};
  return 0;
}

void trim(PoolState* pool, uint64_t keep) {
  uint64_t wanted = pool->used > keep ? pool->used : keep;
  wanted = (wanted + (32 << 20) - 1) / (32 << 20) * (32 << 20);
  if (wanted >= pool->reserved) return;
  take(pool->device, -static_cast<int64_t>(pool->reserved - wanted));
  pool->reserved = wanted;
}

PoolState* asPool(Pool pool) { return reinterpret_cast<PoolState*>(pool); }

}  // namespace

API cuInit(unsigned int) {
  FAULT("cuInit");
  for (int i = 0; i < fake::kDevices; ++i) {
    defaultPools[i].device = i;
    if (currentPools[i] == nullptr) currentPools[i] = &defaultPools[i];
  }
  initialised = true;
  return 0;
}
API cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API cuDeviceGetCount(int* count) { return initialised ? (*count = deviceCount(), 0) : 3; }
API cuDeviceGet(Device* device, int ordinal) {
  return ordinal >= 0 && ordinal < deviceCount() ? (*device = ordinal, 0) : 101;
}
API cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = 0xaa;
  // FAKE_SWAP: this process sees the devices in reverse, as CUDA_VISIBLE_DEVICES may have it.
  uuid->bytes[15] = static_cast<unsigned char>(fake::number("FAKE_SWAP", 0) ? deviceCount() - 1 - device : device);
  return 0;
}
API cuDeviceGetPCIBusId(char* bus, int length, Device device) {
  snprintf(bus, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, Device) { return *bytes = fake::state()->capacity, 0; }

API cuCtxCreate_v2(Context* context, unsigned int, Device device) {
  FAULT("cuCtxCreate_v2");
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t made = 0;
  Result result = createContext(device, &made);
  if (result == 0) *context = reinterpret_cast<Context>(current = made);
  return result;
}
API cuCtxDestroy_v2(Context context) {
  std::lock_guard<std::mutex> lock(mutex);
  if (contexts.count(reinterpret_cast<uint64_t>(context)) == 0) return 201;
  destroyContext(reinterpret_cast<uint64_t>(context));
  return 0;
}
API cuDevicePrimaryCtxRetain(Context* context, Device device) {
  FAULT("cuDevicePrimaryCtxRetain");
  std::lock_guard<std::mutex> lock(mutex);
  if (primary[device] == 0) {
    Result result = createContext(device, &primary[device]);
    if (result != 0) return result;
  }
  ++primaryCount[device];
  *context = reinterpret_cast<Context>(primary[device]);
  return 0;
}
API cuDevicePrimaryCtxRelease_v2(Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  if (primaryCount[device] == 0) return 201;
  if (--primaryCount[device] == 0) {
    destroyContext(primary[device]);
    primary[device] = 0;
  }
  return 0;
}
API cuDevicePrimaryCtxReset_v2(Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  if (primary[device] != 0) destroyContext(primary[device]);
  primary[device] = 0;
  primaryCount[device] = 0;
  return 0;
}
API cuDevicePrimaryCtxGetState(Device device, unsigned int* flags, int* active) {
  std::lock_guard<std::mutex> lock(mutex);
  *flags = 0;
  *active = primary[device] != 0;
  return 0;
}
API cuCtxGetCurrent(Context* context) { return *context = reinterpret_cast<Context>(current), 0; }
API cuCtxSetCurrent(Context context) { return current = reinterpret_cast<uint64_t>(context), 0; }
API cuCtxPushCurrent_v2(Context context) { return current = reinterpret_cast<uint64_t>(context), 0; }
API cuCtxPopCurrent_v2(Context* context) { return *context = reinterpret_cast<Context>(current), 0; }
API cuCtxGetDevice(Device* device) {
  std::lock_guard<std::mutex> lock(mutex);
  return currentDevice(device) ? 0 : 201;
}

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  fake::Locked state;
  *total = state->capacity;
  *free = state->capacity - state.used(device);
  return 0;
}
API cuMemAlloc_v2(Address* address, size_t size) {
  FAULT("cuMemAlloc_v2");
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Block block{};
  Result result = allocate(device, size, &block);
  if (result == 0) blocks[*address = newName(size)] = block;
  return result;
}
API cuMemAllocManaged(Address* address, size_t size, unsigned int) { return cuMemAlloc_v2(address, size); }
API cuMemAllocPitch_v2(Address* address, size_t* pitch, size_t width, size_t height, unsigned int) {
  *pitch = (width + 1023) / 1024 * 1024;  // more than the hook expects
  return cuMemAlloc_v2(address, *pitch * height);
}
API cuMemFree_v2(Address address) {
  FAULT("cuMemFree_v2");
  std::lock_guard<std::mutex> lock(mutex);
  auto found = blocks.find(address);
  if (found == blocks.end()) return 1;
  giveBack(found->second);
  blocks.erase(found);
  return 0;
}

API cuMemHostAlloc(void** at, size_t size, unsigned int) {
  std::lock_guard<std::mutex> lock(mutex);
  hostBlocks[*at = malloc(size)] = size;
  return 0;
}
API cuMemAllocHost_v2(void** at, size_t size) { return cuMemHostAlloc(at, size, 0); }
API cuMemFreeHost(void* at) {
  std::lock_guard<std::mutex> lock(mutex);
  if (hostBlocks.erase(at) == 0) return 1;
  free(at);
  return 0;
}

// Another process's memory: real drivers may or may not show it in the importer's figure; this one does.
API cuIpcOpenMemHandle_v2(Address* address, IpcMemHandle handle, unsigned int) {
  uint64_t size = 0;
  memcpy(&size, handle.reserved, sizeof size);
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Block block{device, size, 0, rounded(size)};
  if (!take(device, static_cast<int64_t>(block.pages))) return 2;
  blocks[*address = newName(size)] = block;
  foreign.insert(*address);
  return 0;
}
API cuIpcCloseMemHandle(Address address) {
  if (foreign.erase(address) == 0) return 1;
  std::lock_guard<std::mutex> lock(mutex);
  giveBack(blocks[address]);
  blocks.erase(address);
  return 0;
}

API cuStreamIsCapturing(Stream, int* status) { return *status = capturing ? 1 : 0, 0; }
API cuStreamBeginCapture_v2(Stream, int) { return capturing = true, 0; }
API cuStreamEndCapture(Stream, Graph* graph) {
  capturing = false;
  *graph = reinterpret_cast<Graph>(newName(1));
  return 0;
}
API cuDeviceGetMemPool(Pool* pool, Device device) {
  *pool = reinterpret_cast<Pool>(currentPools[device]);
  return 0;
}
API cuDeviceGetDefaultMemPool(Pool* pool, Device device) {
  *pool = reinterpret_cast<Pool>(&defaultPools[device]);
  return 0;
}
API cuDeviceSetMemPool(Device device, Pool pool) { return currentPools[device] = asPool(pool), 0; }
API cuMemPoolCreate(Pool* pool, const PoolProps* props) {
  PoolState* made = new PoolState();
  made->device = props->location.type == 1 ? props->location.id : 0;
  *pool = reinterpret_cast<Pool>(made);
  return 0;
}
API cuMemPoolDestroy(Pool pool) {
  std::lock_guard<std::mutex> lock(mutex);
  asPool(pool)->used = 0;
  trim(asPool(pool), 0);
  delete asPool(pool);
  return 0;
}
API cuMemPoolTrimTo(Pool pool, size_t keep) {
  std::lock_guard<std::mutex> lock(mutex);
  trim(asPool(pool), keep);
  return 0;
}
API cuMemPoolGetAttribute(Pool pool, int attribute, void* value) {
  std::lock_guard<std::mutex> lock(mutex);
  *static_cast<uint64_t*>(value) = attribute == 5 ? asPool(pool)->reserved : attribute == 7 ? asPool(pool)->used : 0;
  return 0;
}
API cuMemAllocAsync(Address* address, size_t size, Stream) {
  FAULT("cuMemAllocAsync");
  std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  return currentDevice(&device) ? allocateFrom(currentPools[device], address, size) : 201;
}
API cuMemAllocAsync_ptsz(Address* address, size_t size, Stream stream) { return cuMemAllocAsync(address, size, stream); }
API cuMemAllocFromPoolAsync(Address* address, size_t size, Pool pool, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return allocateFrom(asPool(pool), address, size);
}
API cuMemAllocFromPoolAsync_ptsz(Address* address, size_t size, Pool pool, Stream stream) {
  return cuMemAllocFromPoolAsync(address, size, pool, stream);
}
API cuMemFreeAsync(Address address, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = asyncBlocks.find(address);
  if (found == asyncBlocks.end()) return 1;
  found->second.second->used -= found->second.first;
  asyncBlocks.erase(found);
  return 0;
}
API cuMemFreeAsync_ptsz(Address address, Stream stream) { return cuMemFreeAsync(address, stream); }

#ifndef FAKE_OLD
API cuMemCreate(Handle* handle, size_t size, const AllocationProp* prop, unsigned long long) {
  FAULT("cuMemCreate");
  std::lock_guard<std::mutex> lock(mutex);
  const bool onDevice = prop->location.type == 1;
  if (onDevice && !take(prop->location.id, static_cast<int64_t>(size))) return 2;
  physicals[*handle = newName(1)] = Physical{onDevice ? prop->location.id : -1, size, 1, 0};
  return 0;
}

static void dropPhysical(Handle handle) {
  Physical& physical = physicals[handle];
  if (physical.references != 0 || physical.mappings != 0) return;
  if (physical.device >= 0) take(physical.device, -static_cast<int64_t>(physical.size));
  physicals.erase(handle);
}

API cuMemRelease(Handle handle) {
  std::lock_guard<std::mutex> lock(mutex);
  if (physicals.count(handle) == 0 || physicals[handle].references == 0) return 1;
  --physicals[handle].references;
  dropPhysical(handle);
  return 0;
}
API cuMemAddressReserve(Address* address, size_t size, size_t, Address, unsigned long long) {
  return *address = newName(size), 0;
}
API cuMemAddressFree(Address, size_t) { return 0; }
API cuMemMap(Address address, size_t size, size_t, Handle handle, unsigned long long) {
  std::lock_guard<std::mutex> lock(mutex);
  if (physicals.count(handle) == 0) return 1;
  ++physicals[handle].mappings;
  mappings[address] = {size, handle};
  return 0;
}
API cuMemUnmap(Address address, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto at = mappings.lower_bound(address); at != mappings.end() && at->first < address + size;) {
    Handle handle = at->second.second;
    at = mappings.erase(at);
    --physicals[handle].mappings;
    dropPhysical(handle);
  }
  return 0;
}
API cuMemRetainAllocationHandle(Handle* handle, void* at) {
  std::lock_guard<std::mutex> lock(mutex);
  Address address = reinterpret_cast<Address>(at);
  auto found = mappings.upper_bound(address);
  if (found == mappings.begin()) return 1;
  --found;
  if (address >= found->first + found->second.first) return 1;
  *handle = found->second.second;
  ++physicals[*handle].references;
  return 0;
}
API cuMemImportFromShareableHandle(Handle* handle, void*, int) {
  std::lock_guard<std::mutex> lock(mutex);
  physicals[*handle = newName(1)] = Physical{-1, 64 << 20, 1, 0};
  return 0;
}
#endif

API cuGraphAddMemAllocNode(GraphNode* node, Graph, const GraphNode*, size_t, MemAllocNodeParams* params) {
  std::lock_guard<std::mutex> lock(mutex);
  graphPending[params->pool.location.id] += rounded(params->bytes);
  params->address = newName(params->bytes);
  *node = reinterpret_cast<GraphNode>(newName(1));
  return 0;
}
#ifndef FAKE_OLD
API cuGraphAddNode_v2(GraphNode* node, Graph graph, const GraphNode* needs, const void*, size_t count,
                      GraphNodeParams* params) {
  if (params->type == kGraphNodeMemAlloc) return cuGraphAddMemAllocNode(node, graph, needs, count, &params->alloc);
  return 0;
}
#endif
API cuGraphInstantiateWithFlags(GraphExec* exec, Graph, unsigned long long) {
  *exec = reinterpret_cast<GraphExec>(newName(1));
  return 0;
}
API cuGraphUpload(GraphExec, Stream) {
  std::lock_guard<std::mutex> lock(mutex);
  for (int device = 0; device < deviceCount(); ++device) {
    if (!take(device, static_cast<int64_t>(graphPending[device]))) return 2;
    graphReserved[device] += graphPending[device];
    graphPending[device] = 0;
  }
  return 0;
}
API cuGraphExecDestroy(GraphExec) { return 0; }
API cuDeviceGraphMemTrim(Device device) {
  std::lock_guard<std::mutex> lock(mutex);
  take(device, -static_cast<int64_t>(graphReserved[device]));
  graphReserved[device] = 0;
  return 0;
}
API cuDeviceGetGraphMemAttribute(Device device, int, void* value) {
  std::lock_guard<std::mutex> lock(mutex);
  *static_cast<uint64_t*>(value) = graphReserved[device];
  return 0;
}

static Result createArray(uint64_t* handle, uint64_t bytes) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Block block{};
  Result result = allocate(device, bytes, &block);
  if (result == 0) arrayBlocks[*handle = newName(1)] = block;
  return result;
}
API cuArrayCreate_v2(Array* array, const ArrayDescriptor* wanted) {
  return createArray(reinterpret_cast<uint64_t*>(array),
                     wanted->width * (wanted->height ? wanted->height : 1) * wanted->channels * 4);
}
API cuArray3DCreate_v2(Array* array, const Array3dDescriptor* wanted) {
  return createArray(reinterpret_cast<uint64_t*>(array),
                     wanted->width * wanted->height * wanted->depth * wanted->channels * 4);
}
API cuMipmappedArrayCreate(Mipmap* array, const Array3dDescriptor* wanted, unsigned int) {
  return createArray(reinterpret_cast<uint64_t*>(array), wanted->width * wanted->height * wanted->channels * 4);
}
static Result destroyArray(uint64_t handle) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = arrayBlocks.find(handle);
  if (found == arrayBlocks.end()) return 1;
  giveBack(found->second);
  arrayBlocks.erase(found);
  return 0;
}
API cuArrayDestroy(Array array) { return destroyArray(reinterpret_cast<uint64_t>(array)); }
API cuMipmappedArrayDestroy(Mipmap array) { return destroyArray(reinterpret_cast<uint64_t>(array)); }

API cuModuleLoadData(void** module, const void*) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device) || !take(device, static_cast<int64_t>(fake::number("FAKE_MODULE", 0)))) return 2;
  *module = reinterpret_cast<void*>(newName(1));
  return 0;
}

// Twelve arguments, of which some are floating-point: what a trampoline must hand through unharmed.
extern "C" __attribute__((visibility("default"))) Result cuLaunchKernel(long a, double x, long b, double y, long c,
                                                                        double z, long d, long e, long f, long g,
                                                                        double w, long h) {
  return a + b + c + d + e + f + g + h == 36 && x + y + z + w == 10.0 ? 0 : 1;
}

#ifdef FAKE_NEW
API cuMemAlloc_v9(Address* address, size_t size, int) { return cuMemAlloc_v2(address, size); }
API cuQuantumEntangle(int* value) { return *value = 42, 0; }
#endif

API cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status);
API cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

API cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  struct Entry {
    const char* name;
    int since;
    void* plain;
    void* perThread;
  };
#define ENTRY(base, since, name) {#base, since, reinterpret_cast<void*>(name), nullptr}
#define STREAM_ENTRY(base, since, name) \
  {#base, since, reinterpret_cast<void*>(name), reinterpret_cast<void*>(name##_ptsz)}
  static const Entry entries[] = {
      ENTRY(cuInit, 2000, cuInit),
      ENTRY(cuDeviceGet, 2000, cuDeviceGet),
      ENTRY(cuDeviceGetCount, 2000, cuDeviceGetCount),
      ENTRY(cuCtxCreate, 3020, cuCtxCreate_v2),
      ENTRY(cuMemAlloc, 3020, cuMemAlloc_v2),
      ENTRY(cuMemFree, 3020, cuMemFree_v2),
      ENTRY(cuMemGetInfo, 3020, cuMemGetInfo_v2),
      STREAM_ENTRY(cuMemAllocAsync, 11020, cuMemAllocAsync),
      STREAM_ENTRY(cuMemFreeAsync, 11020, cuMemFreeAsync),
      ENTRY(cuGetProcAddress, 11030, cuGetProcAddress),
      ENTRY(cuGetProcAddress, 12000, cuGetProcAddress_v2),
#ifdef FAKE_NEW
      ENTRY(cuMemAlloc, 15000, cuMemAlloc_v9),
      ENTRY(cuQuantumEntangle, 15000, cuQuantumEntangle),
#endif
  };
  const Entry* best = nullptr;
  for (const Entry& entry : entries) {
    if (strcmp(entry.name, symbol) == 0 && entry.since <= version && (best == nullptr || entry.since > best->since)) {
      best = &entry;
    }
  }
  *function = nullptr;
  if (status != nullptr) *status = best != nullptr ? 0 : 1;
  if (best == nullptr) return 500;
  *function = flags == 2 && best->perThread != nullptr ? best->perThread : best->plain;
  return 0;
}
