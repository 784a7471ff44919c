// Physical memory and its mappings; multicast objects, which have handles but no memory. Drivers of FAKE_OLD have none.
#include "card.h"

#ifndef FAKE_OLD

using namespace fake;

namespace fake {

namespace {

struct Physical {
  int device;  // -1: takes nothing of a device
  uint64_t size;
  int references;
  int mappings;
  int arrays = 0;  // of the mappings, those that are pieces of sparse arrays
  bool hidden = false;
};

std::map<Handle, Physical> physicals;
std::map<Address, std::pair<uint64_t, Handle>> mappings;
/** Pieces of sparse arrays and of multicast objects, with the memory behind them. */
struct Piece {
  Handle memory;
  bool array;
};
using Pieces = std::map<std::pair<uint64_t, uint64_t>, Piece>;
Pieces pieces;
Handle lastGone = 0;

/** Handles come back at once, as with real drivers. */
Handle newHandle() {
  if (lastGone == 0) return newName(1);
  const Handle handle = lastGone;
  lastGone = 0;
  return handle;
}

Pieces::iterator letGo(Pieces::iterator at);

/** As with the real NVML: what only pieces of arrays hold is in the device's figure, and not in the process's. */
void showOrHide(Physical& physical) {
  const bool hide = physical.references == 0 && physical.arrays != 0 && physical.mappings == physical.arrays;
  if (physical.device < 0 || hide == physical.hidden) return;
  physical.hidden = hide;
  Locked state;
  state.mine().inArraysOnly[physical.device] += hide ? physical.size : -physical.size;
}

void dropPhysical(Handle handle) {
  Physical& physical = physicals[handle];
  showOrHide(physical);
  if (physical.references != 0 || physical.mappings != 0) return;
  if (physical.device >= 0) take(physical.device, -static_cast<int64_t>(physical.size));
  physicals.erase(handle);
  lastGone = handle;
  for (auto at = pieces.begin(); at != pieces.end();) {
    if (at->first.first == handle) at = letGo(at);
    else ++at;
  }
}

Pieces::iterator letGo(Pieces::iterator at) {
  const Handle handle = at->second.memory;
  if (at->second.array) --physicals[handle].arrays;
  const auto next = pieces.erase(at);
  --physicals[handle].mappings;
  dropPhysical(handle);
  return next;
}

Result holdPiece(uint64_t object, uint64_t offset, Handle handle) {
  std::lock_guard<std::mutex> lock(mutex);
  if (physicals.count(handle) == 0) return 1;
  ++physicals[handle].mappings;
  const bool array = physicals.count(object) == 0;
  if (array) ++physicals[handle].arrays;
  pieces[{object, offset}] = {handle, array};
  return 0;
}

}  // namespace

}  // namespace fake

API cuMemCreate(Handle* handle, size_t size, const AllocationProp* prop, unsigned long long) {
  FAULT("cuMemCreate");
  std::lock_guard<std::mutex> lock(mutex);
  const bool onDevice = prop->location.type == kLocationDevice;
  if (onDevice && !take(prop->location.id, static_cast<int64_t>(size))) return 2;
  physicals[*handle = newHandle()] = Physical{onDevice ? prop->location.id : -1, size, 1, 0};
  return 0;
}
API cuMemRelease(Handle handle) {
  FAULT("cuMemRelease");
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (physicals.count(handle) == 0 || physicals[handle].references == 0) return 1;
    --physicals[handle].references;
    dropPhysical(handle);
  }
  usleep(static_cast<useconds_t>(number("FAKE_SLOW", 0)));
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
  FAULT("cuMemUnmap");
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
  physicals[*handle = newHandle()] = Physical{-1, 64 << 20, 1, 0};
  return 0;
}
API cuMulticastCreate(Handle* handle, const void*) {
  std::lock_guard<std::mutex> lock(mutex);
  physicals[*handle = newHandle()] = Physical{-1, 0, 1, 0};
  return 0;
}

API cuMulticastBindMem(Handle object, size_t at, Handle memory, size_t, size_t, unsigned long long) {
  return holdPiece(object, at, memory);
}
API cuMulticastBindMem_v2(Handle object, Device, size_t at, Handle memory, size_t, size_t, unsigned long long) {
  return holdPiece(object, at, memory);
}
API cuMulticastBindAddr(Handle object, size_t at, Address address, size_t, unsigned long long) {
  return mappings.count(address) == 0 ? 1 : holdPiece(object, at, mappings[address].second);
}
API cuMulticastBindAddr_v2(Handle object, Device, size_t at, Address address, size_t size, unsigned long long flags) {
  return cuMulticastBindAddr(object, at, address, size, flags);
}
API cuMulticastUnbind(Handle object, Device, size_t at, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto piece = pieces.lower_bound({object, at}); piece != pieces.end() && piece->first.first == object;) {
    if (piece->first.second >= at + size) break;
    piece = letGo(piece);
  }
  return 0;
}
API cuMemMapArrayAsync(ArrayMapInfo* list, unsigned int count, Stream) {
  for (unsigned int i = 0; i < count; ++i) {
    const uint64_t offset = list[i].subresource[0];
    if (list[i].operation == kMapOperation) {
      if (holdPiece(list[i].resource, offset, list[i].handle) != 0) return 1;
      list[i].handle = 0;  // the list is the driver's to write in
      continue;
    }
    std::lock_guard<std::mutex> lock(mutex);
    const auto piece = pieces.find({list[i].resource, offset});
    if (piece == pieces.end()) return 1;
    letGo(piece);
  }
  return 0;
}
API cuMemMapArrayAsync_ptsz(ArrayMapInfo* list, unsigned int count, Stream stream) {
  return cuMemMapArrayAsync(list, count, stream);
}

#endif
