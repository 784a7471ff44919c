#include "device_index.h"

#include <string.h>

#include <atomic>

#include "driver_calls.h"
#include "process_gate.h"

namespace oomtune::cuda::account {

namespace {

constexpr int kOrdinals = 64;

int devices = 0;
DeviceIndex deviceIndices[kOrdinals];
Device ordinals[kDevices];
std::atomic<bool> learned{false};

void uuidText(const char* kind, const Uuid& uuid, char* out) {
  static const char kHex[] = "0123456789abcdef";
  const size_t length = strlen(kind);
  memcpy(out, kind, length + 1);
  char* at = out + length;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kHex[uuid.bytes[i] >> 4];
    *at++ = kHex[uuid.bytes[i] & 15];
  }
  *at = '\0';
}

bool ledgerKnowsUuids() {
  for (uint32_t d = 1; d < kDevices; ++d) {
    const DeviceEntry& entry = gate().ledger()->devices[d];
    if (entry.present.load() == 1 && entry.uuid[0] != '\0') return true;
  }
  return false;
}

/** By uuid, as a rank may have narrowed or reordered its devices; by ordinal if the launcher knew no uuids. */
DeviceIndex findDeviceIndex(Device ordinal) {
  if (!ledgerKnowsUuids()) return ordinal + 1 < static_cast<int>(kDevices) ? ordinal + 1 : kNotCounted;
  Uuid uuid{};
  if (driver.deviceGetUuid == nullptr || driver.deviceGetUuid(&uuid, ordinal) != kSuccess) return kNotCounted;
  char text[64];
  uuidText("GPU-", uuid, text);
  DeviceIndex deviceIndex = gate().deviceByUuid(text);
  if (deviceIndex >= 0) return deviceIndex;
  uuidText("MIG-", uuid, text);
  return gate().deviceByUuid(text);
}

}  // namespace

void learnDevices(void (*found)(DeviceIndex deviceIndex, const char* bus, const char* mig)) {
  for (DeviceIndex& deviceIndex : deviceIndices) deviceIndex = kNotCounted;
  for (Device& ordinal : ordinals) ordinal = -1;
  int count = 0;
  if (driver.deviceGetCount == nullptr || driver.deviceGetCount(&count) != kSuccess) return;
  for (Device ordinal = 0; ordinal < count && ordinal < kOrdinals; ++ordinal) {
    DeviceIndex deviceIndex = findDeviceIndex(ordinal);
    deviceIndices[ordinal] = deviceIndex;
    if (deviceIndex < 0) continue;
    ordinals[deviceIndex] = ordinal;
    char bus[32] = "";
    char mig[64] = "";
    Uuid uuid{};
    if (driver.deviceGetPciBusId != nullptr) driver.deviceGetPciBusId(bus, sizeof bus, ordinal);
    if (driver.deviceGetUuid != nullptr && driver.deviceGetUuid(&uuid, ordinal) == kSuccess) {
      uuidText("MIG-", uuid, mig);
    }
    found(deviceIndex, bus, mig);
  }
  devices = count;
  learned.store(true, std::memory_order_release);
}

DeviceIndex deviceIndexOf(Device ordinal) {
  if (!learned.load(std::memory_order_acquire) || ordinal < 0 || ordinal >= devices || ordinal >= kOrdinals) {
    return kNotCounted;
  }
  return deviceIndices[ordinal];
}

DeviceIndex deviceIndexOf(const Location& location) {
  return location.type == kLocationDevice ? deviceIndexOf(location.id) : kNotCounted;
}

DeviceIndex currentDeviceIndex() {
  if (!learned.load(std::memory_order_acquire)) return kNotCounted;
  if (devices == 1) return deviceIndices[0];
  Device ordinal = -1;
  if (driver.ctxGetDevice == nullptr || driver.ctxGetDevice(&ordinal) != kSuccess) return kNotCounted;
  return deviceIndexOf(ordinal);
}

DeviceIndex deviceIndexOfStream(Stream stream) {
  // 0, 1 and 2 mean the default streams of the current context.
  if (devices <= 1 || reinterpret_cast<uintptr_t>(stream) <= 2) return currentDeviceIndex();
  Device ordinal = -1;
  if (driver.streamGetDevice != nullptr && driver.streamGetDevice(stream, &ordinal) == kSuccess) {
    return deviceIndexOf(ordinal);
  }
  Context context = nullptr;
  if (driver.streamGetCtx == nullptr || driver.streamGetCtx(stream, &context) != kSuccess ||
      driver.ctxPushCurrent == nullptr || driver.ctxPushCurrent(context) != kSuccess) {
    return currentDeviceIndex();
  }
  DeviceIndex deviceIndex = currentDeviceIndex();
  driver.ctxPopCurrent(&context);
  return deviceIndex;
}

Device ordinalOf(DeviceIndex deviceIndex) {
  return deviceIndex > 0 && deviceIndex < static_cast<DeviceIndex>(kDevices) ? ordinals[deviceIndex] : -1;
}

}  // namespace oomtune::cuda::account
