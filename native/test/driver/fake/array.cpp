// Arrays and mipmapped arrays.
#include "card.h"

using namespace fake;

namespace fake {

namespace {

std::map<uint64_t, Block> arrays;

Result create(uint64_t* handle, uint64_t bytes) {
  int device = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!currentDevice(&device)) return 201;
  Block block{};
  Result result = allocate(device, bytes, &block);
  if (result == 0) arrays[*handle = newName(1)] = block;
  return result;
}

Result destroy(uint64_t handle) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = arrays.find(handle);
  if (found == arrays.end()) return 1;
  giveBack(found->second);
  arrays.erase(found);
  return 0;
}

}  // namespace

void forgetArrays(uint64_t context) {
  for (auto at = arrays.begin(); at != arrays.end();) {
    if (at->second.context != context) {
      ++at;
      continue;
    }
    giveBack(at->second);
    at = arrays.erase(at);
  }
}

}  // namespace fake

API cuArrayCreate_v2(Array* array, const ArrayDescriptor* wanted) {
  FAULT("cuArrayCreate_v2");
  return create(reinterpret_cast<uint64_t*>(array),
                wanted->width * (wanted->height ? wanted->height : 1) * wanted->channels * 4);
}
API cuArray3DCreate_v2(Array* array, const Array3dDescriptor* wanted) {
  return create(reinterpret_cast<uint64_t*>(array),
                wanted->width * wanted->height * wanted->depth * wanted->channels * 4);
}
API cuMipmappedArrayCreate(Mipmap* array, const Array3dDescriptor* wanted, unsigned int) {
  return create(reinterpret_cast<uint64_t*>(array), wanted->width * wanted->height * wanted->channels * 4);
}
API cuArrayCreate(Array* array, const FirstArrayDescriptor* wanted) {
  return create(reinterpret_cast<uint64_t*>(array), uint64_t{wanted->width} * wanted->height * wanted->channels * 4);
}
API cuArray3DCreate(Array* array, const FirstArray3dDescriptor* wanted) {
  return create(reinterpret_cast<uint64_t*>(array),
                uint64_t{wanted->width} * wanted->height * wanted->depth * wanted->channels * 4);
}
API cuArrayGetSparseProperties(void* properties, Array) {
  unsigned int* words = static_cast<unsigned int*>(properties);
  words[0] = words[1] = 64;
  words[2] = words[3] = 1;
  return 0;
}
API cuArrayDestroy(Array array) { return destroy(reinterpret_cast<uint64_t>(array)); }
API cuMipmappedArrayDestroy(Mipmap array) { return destroy(reinterpret_cast<uint64_t>(array)); }
