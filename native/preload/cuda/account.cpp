#include "account.h"

#include "device_watch.h"

namespace oomtune::cuda::account {

namespace {

constexpr uint64_t kMiB = 1ULL << 20;

}  // namespace

uint64_t physical(uint64_t size) {
  if (size <= kMiB || size > UINT64_MAX - 2 * kMiB) return size;  // no device is that large: the driver will refuse it
  return (size + 2 * kMiB - 1) & ~(2 * kMiB - 1);
}

void settle(DeviceIndex deviceIndex, Kind kind, uint64_t size, Result result, const char* api) {
  BudgetGate& gate = account::gate();
  if (deviceIndex < 0) return;
  if (result == kSuccess) {
    gate.commit(deviceIndex, kind, size);
    return;
  }
  gate.cancel(deviceIndex, size);
  if (result == kOutOfMemory) gate.refuse(deviceIndex, size, api, kByDriver);
}

void add(DeviceIndex deviceIndex, Kind kind, uint64_t size) {
  if (deviceIndex >= 0) gate().add(deviceIndex, kind, size);
}

void release(DeviceIndex deviceIndex, Kind kind, uint64_t size) {
  if (deviceIndex < 0) return;
  if (deviceIndex != static_cast<DeviceIndex>(kHostDevice)) noteFreed(deviceIndex);
  gate().release(deviceIndex, kind, size);
}

void handOver(DeviceIndex deviceIndex, Kind kind, uint64_t size) {
  if (deviceIndex < 0) return;
  // If overhead cannot be measured it would stay charged for ever.
  if (gate().ledger()->devices[deviceIndex].measured.load() == kMeasuredNot) release(deviceIndex, kind, size);
  else gate().handOver(deviceIndex, kind, size);
}

void refused(DeviceIndex deviceIndex, uint64_t size, const char* api, RefusedBy by) {
  if (deviceIndex >= 0) gate().refuse(deviceIndex, size, api, by);
}

bool overBudget(DeviceIndex deviceIndex) {
  BudgetGate& gate = account::gate();
  if (deviceIndex < 0 || !gate.attached()) return false;
  const uint64_t budget = gate.budget(deviceIndex);
  return budget != kNoBudget && gate.ledger()->devices[deviceIndex].committed.load() > budget;
}

uint64_t available(DeviceIndex deviceIndex) { return deviceIndex >= 0 ? gate().available(deviceIndex) : kNoBudget; }

}  // namespace oomtune::cuda::account
