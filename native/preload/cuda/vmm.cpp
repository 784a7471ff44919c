#include "vmm.h"

#include <atomic>

#include "hash_table.h"
#include "ledger.h"

namespace oomtune::cuda {

namespace {

struct Block {
  uint64_t size;
  uint32_t references;
  uint32_t mappings;
  uint32_t arrays;  // of the mappings, those that are pieces of sparse arrays
  bool inArraysOnly;
  uint32_t leaving;  // references that are being given up
  int32_t deviceIndex;
  uint32_t next;  // in the free list
};

struct Hold {
  uint64_t object;
  uint64_t offset;
  uint32_t block;
  bool array;
};

struct Mapping {
  uint64_t size;
  uint32_t block;
};

// One lock for all: these calls go to the kernel and are rare. Blocks are named by index; their memory never moves.
constexpr uint32_t kChunk = 4096;
constexpr uint32_t kChunks = 4096;
constexpr uint32_t kNone = UINT32_MAX;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Block* chunks[kChunks];
uint32_t used = 0;
uint32_t freeList = kNone;
HashTable<uint32_t> handles;
HashTable<Mapping> mappings;
HashTable<Hold> holds;
std::atomic<uint64_t> inArraysOnly[kDevices];

Block& blockAt(uint32_t index) { return chunks[index / kChunk][index % kChunk]; }

uint32_t newBlock() {
  if (freeList != kNone) {
    uint32_t index = freeList;
    freeList = blockAt(index).next;
    return index;
  }
  if (used == kChunk * kChunks) return kNone;
  if (used % kChunk == 0 && chunks[used / kChunk] == nullptr) {
    void* memory = mmap(nullptr, kChunk * sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return kNone;
    chunks[used / kChunk] = static_cast<Block*>(memory);
  }
  return used++;
}

/** After each change of what keeps the block there. */
void recount(Block& block) {
  const bool now = block.references == 0 && block.arrays != 0 && block.mappings == block.arrays;
  if (now == block.inArraysOnly) return;
  block.inArraysOnly = now;
  if (now) inArraysOnly[block.deviceIndex].fetch_add(block.size);
  else inArraysOnly[block.deviceIndex].fetch_sub(block.size);
}

void refer(Block& block) {
  ++block.references;
  recount(block);
}

void map(Block& block, bool array) {
  ++block.mappings;
  if (array) ++block.arrays;
  recount(block);
}

void dropIfGone(uint32_t index) {
  Block& block = blockAt(index);
  recount(block);
  if (block.references != 0 || block.mappings != 0 || block.leaving != 0) return;
  account::release(block.deviceIndex, kVmm, block.size);
  block.next = freeList;
  freeList = index;
}

void unmap(uint32_t index, bool array) {
  Block& block = blockAt(index);
  --block.mappings;
  if (array) --block.arrays;
  dropIfGone(index);
}

/** The block that is mapped at an address or around it. */
bool findMapping(Address address, Mapping* out) {
  if (mappings.get(address, out)) return true;
  bool found = false;
  mappings.takeIf([&](uint64_t start, const Mapping& mapping) {
    if (address >= start && address - start < mapping.size) {
      *out = mapping;
      found = true;
    }
    return false;
  });
  return found;
}

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

void hold(uint64_t object, uint64_t offset, uint32_t index, bool array) {
  Block& block = blockAt(index);
  const uint64_t key = mixed(object + mixed(offset + mixed(static_cast<uint64_t>(block.deviceIndex) + 1))) | 1;
  Hold before{};
  const bool replaces = holds.take(key, &before);
  if (holds.put(key, Hold{object, offset, index, array})) map(block, array);
  if (replaces) unmap(before.block, before.array);
}

}  // namespace

bool vmmCreated(Handle handle, account::DeviceIndex deviceIndex, uint64_t size) {
  Lock lock(mutex);
  uint32_t index = newBlock();
  if (index == kNone) return false;
  blockAt(index) = Block{size, 1, 0, 0, false, 0, deviceIndex, kNone};
  if (handles.put(handle, index)) return true;
  blockAt(index).next = freeList;
  freeList = index;
  return false;
}

void vmmRetained(Handle handle, Address address) {
  Lock lock(mutex);
  uint32_t index = 0;
  if (handles.get(handle, &index)) {
    refer(blockAt(index));
    return;
  }
  Mapping at{};
  const bool found = findMapping(address, &at);
  // The first handle was released before: the driver may name the same memory by a new one.
  if (found && handles.put(handle, at.block)) refer(blockAt(at.block));
}

uint32_t vmmReleasing(Handle handle) {
  Lock lock(mutex);
  uint32_t index = 0;
  if (!handles.get(handle, &index)) return kNone;
  Block& block = blockAt(index);
  ++block.leaving;
  if (block.references > 0) --block.references;
  if (block.references == 0) handles.take(handle, &index);
  return index;
}

void vmmReleased(Handle handle, uint32_t index, bool done) {
  if (index == kNone) return;
  Lock lock(mutex);
  Block& block = blockAt(index);
  --block.leaving;
  if (!done) {
    refer(block);
    handles.put(handle, index);
  }
  dropIfGone(index);
}

void vmmMapped(Address address, size_t size, Handle handle) {
  Lock lock(mutex);
  uint32_t index = 0;
  if (!handles.get(handle, &index)) return;
  if (mappings.put(address, Mapping{size, index})) map(blockAt(index), false);
}

void vmmUnmapped(Address address, size_t size) {
  Lock lock(mutex);
  Mapping mapping{};
  if (mappings.get(address, &mapping) && mapping.size == size) {
    mappings.take(address, &mapping);
    unmap(mapping.block, false);
    return;
  }
  mappings.takeIf([&](uint64_t start, const Mapping& inside) {
    if (start < address || start - address >= size) return false;
    unmap(inside.block, false);
    return true;
  });
}

void vmmInArray(uint64_t array, uint64_t piece, Handle handle) {
  Lock lock(mutex);
  uint32_t index = 0;
  if (handles.get(handle, &index)) hold(array, piece, index, true);
}

uint64_t vmmInArraysOnly(account::DeviceIndex deviceIndex) { return inArraysOnly[deviceIndex].load(); }

void vmmBound(uint64_t object, uint64_t offset, Handle handle) {
  Lock lock(mutex);
  uint32_t index = 0;
  if (handles.get(handle, &index)) hold(object, offset, index, false);
}

void vmmBoundAt(uint64_t object, uint64_t offset, Address address) {
  Lock lock(mutex);
  Mapping at{};
  if (findMapping(address, &at)) hold(object, offset, at.block, false);
}

void vmmLetGo(uint64_t object, account::DeviceIndex deviceIndex, uint64_t offset, uint64_t size) {
  Lock lock(mutex);
  holds.takeIf([&](uint64_t, const Hold& held) {
    if (held.object != object || held.offset < offset || held.offset - offset >= size) return false;
    if (deviceIndex >= 0 && blockAt(held.block).deviceIndex != deviceIndex) return false;
    unmap(held.block, held.array);
    return true;
  });
}

void forgetVmm() {
  mutex = PTHREAD_MUTEX_INITIALIZER;
  handles.forget();
  mappings.forget();
  holds.forget();
  for (std::atomic<uint64_t>& bytes : inArraysOnly) bytes.store(0);
  used = 0;
  freeList = kNone;
}

}  // namespace oomtune::cuda
