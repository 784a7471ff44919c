// Arrays and mipmapped arrays. The driver does not tell their size: it is computed from the description; padding
// shows up in the measured overhead.
#include "admission.h"
#include "allocation_tables.h"
#include "driver.h"
#include "vmm.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

/** Bits of one element of a format, all channels together. Planar and packed video formats are given by their mean. */
uint64_t bitsOf(unsigned int format, unsigned int channels) {
  // clang-format off: one line a size
  switch (format) {
    case 0x01: case 0x08: case 0xc0: case 0xc1: case 0xc2: case 0xc6: case 0xc7: case 0xc8:
      return 8ULL * channels;
    case 0x02: case 0x09: case 0x10: case 0xc3: case 0xc4: case 0xc5: case 0xc9: case 0xca: case 0xcb:
      return 16ULL * channels;
    case 0x03: case 0x0a: case 0x20:
      return 32ULL * channels;
    case 0x50: return 32;
    case 0x91: case 0x92: case 0x97: case 0x98: return 4;  // block compressed, 8 bytes for 16 texels
    case 0x93: case 0x94: case 0x95: case 0x96: case 0x99: case 0x9a:
    case 0x9b: case 0x9c: case 0x9d: case 0x9e: return 8;  // 16 bytes for 16 texels
    case 0xb0: return 12;  // NV12
    case 0x9f: case 0xa1: return 24;  // P010, P016
    case 0xa2: case 0xa4: return 16;  // NV16, YUY2
    default: return 32;
  }
  // clang-format on
}

uint64_t atLeastOne(uint64_t value) { return value == 0 ? 1 : value; }

uint64_t arrayBytes(uint64_t width, uint64_t height, uint64_t depth, unsigned int format, unsigned int channels) {
  return (atLeastOne(width) * atLeastOne(height) * atLeastOne(depth) * bitsOf(format, channels) + 7) / 8;
}

uint64_t descriptionBytes(const Array3dDescriptor* wanted, unsigned int levels) {
  // Sparse and deferred arrays have no memory of their own: it is mapped into them.
  if (wanted == nullptr || (wanted->flags & (kArraySparse | kArrayDeferred)) != 0) return 0;
  constexpr unsigned int kLayered = 0x01;
  const bool layers = (wanted->flags & (kLayered | kArrayCubemap)) != 0;
  uint64_t width = wanted->width;
  uint64_t height = wanted->height;
  uint64_t depth = wanted->depth;
  uint64_t bytes = 0;
  for (unsigned int level = 0; level < levels && level < 32; ++level) {
    bytes += arrayBytes(width, height, depth, wanted->format, wanted->channels);
    width = width > 1 ? width / 2 : width;
    height = height > 1 ? height / 2 : height;
    if (!layers) depth = depth > 1 ? depth / 2 : depth;
  }
  return bytes;
}

void remember(DeviceIndex deviceIndex, uint64_t size, uint64_t handle) {
  if (deviceIndex < 0 || size == 0) return;
  const Allocation allocation{size, currentContext(), static_cast<int16_t>(deviceIndex), kArray, contextAge()};
  if (!arrays.put(handle, allocation)) {
    account::release(deviceIndex, kArray, size);
    account::markBlind(kBlindHook);
  }
}

/** Around the driver's own call: admit, call, settle, remember. */
template <class ArrayHandle, class Call>
Result create(ArrayHandle* array, uint64_t bytes, const char* api, Call call) {
  const DeviceIndex deviceIndex = account::currentDeviceIndex();
  if (!account::admit(deviceIndex, bytes, api)) return kOutOfMemory;
  account::DriverCall driverCallUnderWay;
  Result result = call();
  account::settle(deviceIndex, kArray, bytes, result, api);
  if (result == kSuccess) remember(deviceIndex, bytes, reinterpret_cast<uint64_t>(*array));
  return result;
}

OOMTUNE_HOOK(cuArrayCreate_v2, Array* array, const ArrayDescriptor* wanted) {
  const uint64_t bytes =
      wanted == nullptr ? 0 : arrayBytes(wanted->width, wanted->height, 1, wanted->format, wanted->channels);
  return create(array, bytes, "cuArrayCreate_v2", [=] { return cuArrayCreate_v2_real(array, wanted); });
}

OOMTUNE_HOOK(cuArray3DCreate_v2, Array* array, const Array3dDescriptor* wanted) {
  return create(array, descriptionBytes(wanted, 1), "cuArray3DCreate_v2",
                [=] { return cuArray3DCreate_v2_real(array, wanted); });
}

OOMTUNE_HOOK(cuMipmappedArrayCreate, Mipmap* array, const Array3dDescriptor* wanted, unsigned int levels) {
  return create(array, descriptionBytes(wanted, levels), "cuMipmappedArrayCreate",
                [=] { return cuMipmappedArrayCreate_real(array, wanted, levels); });
}

// The forms of CUDA's first version.
OOMTUNE_HOOK(cuArrayCreate, Array* array, const FirstArrayDescriptor* wanted) {
  const uint64_t bytes =
      wanted == nullptr ? 0 : arrayBytes(wanted->width, wanted->height, 1, wanted->format, wanted->channels);
  return create(array, bytes, "cuArrayCreate", [=] { return cuArrayCreate_real(array, wanted); });
}

OOMTUNE_HOOK(cuArray3DCreate, Array* array, const FirstArray3dDescriptor* wanted) {
  Array3dDescriptor same{};
  if (wanted != nullptr) {
    same = {wanted->width, wanted->height, wanted->depth, wanted->format, wanted->channels, wanted->flags};
  }
  return create(array, wanted == nullptr ? 0 : descriptionBytes(&same, 1), "cuArray3DCreate",
                [=] { return cuArray3DCreate_real(array, wanted); });
}

template <class ArrayHandle>
Result destroy(ArrayHandle array, Result (*real)(ArrayHandle)) {
  account::DriverCall driverCallUnderWay;
  Allocation allocation{};
  const uint64_t handle = reinterpret_cast<uint64_t>(array);
  const bool ours = arrays.take(handle, &allocation);
  Result result = real(array);
  if (ours && result == kSuccess) account::release(allocation.deviceIndex, kArray, allocation.size);
  if (result == kSuccess) vmmLetGo(handle, account::kNotCounted, 0, UINT64_MAX);  // what a sparse one was mapped to
  if (ours && result != kSuccess) arrays.put(handle, allocation);
  return result;
}

OOMTUNE_HOOK(cuArrayDestroy, Array array) { return destroy(array, cuArrayDestroy_real); }

OOMTUNE_HOOK(cuMipmappedArrayDestroy, Mipmap array) { return destroy(array, cuMipmappedArrayDestroy_real); }

const Hook kHooks[] = {
    OOMTUNE_HOOKED(cuArrayCreate_v2), OOMTUNE_HOOKED(cuArray3DCreate_v2),      OOMTUNE_HOOKED(cuMipmappedArrayCreate),
    OOMTUNE_HOOKED(cuArrayDestroy),   OOMTUNE_HOOKED(cuMipmappedArrayDestroy), OOMTUNE_HOOKED(cuArrayCreate),
    OOMTUNE_HOOKED(cuArray3DCreate),
};

}  // namespace

extern const HookList kArrayHooks = {kHooks, sizeof kHooks / sizeof kHooks[0]};

}  // namespace oomtune::cuda
