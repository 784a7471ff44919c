// Linear memory, pinned host memory, and what comes in from other processes.
#include <string>

#include "card.h"

using namespace fake;

namespace fake {

namespace {

std::map<Address, Block> blocks;
std::map<void*, size_t> hostBlocks;
std::map<void*, size_t> registered;
/** What was opened from elsewhere, and how often: opening it again gives the same address. */
std::map<Address, int> foreign;
uint64_t smallBytes[kDevices];
uint64_t smallPages[kDevices];

}  // namespace

Result allocate(int device, uint64_t size, Block* out) {
  *out = Block{device, size, current, 0};
  if (size > (1 << 20)) {
    out->pages = rounded(size);
    return take(device, static_cast<int64_t>(out->pages)) ? 0 : 2;
  }
  if (smallBytes[device] + size > smallPages[device]) {
    if (!take(device, static_cast<int64_t>(kPage))) return 2;
    smallPages[device] += kPage;
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

void forgetBlocks(uint64_t context) {
  for (auto at = blocks.begin(); at != blocks.end();) {
    if (at->second.context != context) {
      ++at;
      continue;
    }
    giveBack(at->second);
    at = blocks.erase(at);
  }
}

}  // namespace fake

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Locked state;
  *total = state->capacity;
  *free = state->capacity - state.used(device);
  return 0;
}
API cuMemAlloc_v2(Address* address, size_t size) {
  FAULT("cuMemAlloc_v2");
  UNSAFE_IN_CAPTURE();
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  if (size > (1ULL << 60)) return 2;
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
  UNSAFE_IN_CAPTURE();
  std::lock_guard<std::mutex> lock(mutex);
  auto found = blocks.find(address);
  if (found == blocks.end()) return 1;
  giveBack(found->second);
  blocks.erase(found);
  return 0;
}
API cuMemGetAddressRange_v2(Address* base, size_t* size, Address address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = blocks.find(address);
  if (found == blocks.end()) return 500;
  if (base != nullptr) *base = address;
  if (size != nullptr) *size = found->second.size;
  return 0;
}

// The first forms: addresses of 32 bits.
API cuMemAlloc(unsigned int* address, unsigned int size) {
  static unsigned int next = 1 << 20;
  Address wide = 0;
  Result result = cuMemAlloc_v2(&wide, size);
  if (result != 0) return result;
  std::lock_guard<std::mutex> lock(mutex);
  blocks[*address = next] = blocks[wide];
  blocks.erase(wide);
  next += 1 << 20;
  return 0;
}
API cuMemAllocPitch(unsigned int* address, unsigned int* pitch, unsigned int width, unsigned int height, unsigned int) {
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc(address, *pitch * height);
}
API cuMemFree(unsigned int address) { return cuMemFree_v2(address); }
API cuMemGetInfo(unsigned int* free, unsigned int* total) {
  size_t wideFree = 0;
  size_t wideTotal = 0;
  Result result = cuMemGetInfo_v2(&wideFree, &wideTotal);
  *free = static_cast<unsigned int>(wideFree);
  *total = static_cast<unsigned int>(wideTotal);
  return result;
}
API cuMemHostRegister(void* at, size_t size, unsigned int) {
  std::lock_guard<std::mutex> lock(mutex);
  return registered.emplace(at, size).second ? 0 : 712;
}
API cuMemHostRegister_v2(void* at, size_t size, unsigned int flags) { return cuMemHostRegister(at, size, flags); }
API cuMemHostUnregister(void* at) {
  std::lock_guard<std::mutex> lock(mutex);
  return registered.erase(at) == 1 ? 0 : 713;
}

API cuMemHostAlloc(void** at, size_t size, unsigned int) {
  std::lock_guard<std::mutex> lock(mutex);
  hostBlocks[*at = malloc(size)] = size;
  return 0;
}
API cuMemAllocHost_v2(void** at, size_t size) { return cuMemHostAlloc(at, size, 0); }
API cuMemAllocHost(void** at, unsigned int size) { return cuMemHostAlloc(at, size, 0); }
API cuMemFreeHost(void* at) {
  std::lock_guard<std::mutex> lock(mutex);
  if (hostBlocks.erase(at) == 0) return 1;
  free(at);
  return 0;
}

// Another process's memory: real drivers may or may not show it in the importer's figure; this one does.
API cuIpcOpenMemHandle_v2(Address* address, IpcMemHandle handle, unsigned int) {
  static std::map<std::string, Address> opened;
  uint64_t size = 0;
  memcpy(&size, handle.reserved, sizeof size);
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Address& known = opened[std::string(handle.reserved, sizeof handle.reserved)];
  if (known != 0 && foreign.count(known) != 0) {
    ++foreign[*address = known];
    return 0;
  }
  Block block{device, size, 0, rounded(size)};
  if (!take(device, static_cast<int64_t>(block.pages))) return 2;
  blocks[*address = known = newName(size)] = block;
  foreign[known] = 1;
  return 0;
}
API cuIpcOpenMemHandle(Address* address, IpcMemHandle handle, unsigned int flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}
API cuIpcCloseMemHandle(Address address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = foreign.find(address);
  if (found == foreign.end()) return 1;
  if (--found->second > 0) return 0;
  foreign.erase(found);
  giveBack(blocks[address]);
  blocks.erase(address);
  return 0;
}
