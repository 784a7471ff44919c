#include "admission.h"

#include "overhead.h"
#include "pools.h"

namespace oomtune::cuda::account {

namespace {

constexpr uint64_t kMiB = 1ULL << 20;

}  // namespace

bool admit(DeviceIndex deviceIndex, uint64_t size, const char* api) {
  BudgetGate& gate = account::gate();
  if (deviceIndex < 0 || !gate.attached()) return true;
  const uint64_t left = gate.available(deviceIndex);
  bool fresh = false;
  if (left == kNoBudget || left / 2 > size / 2 + 512 * kMiB) {
    fresh = measureOften(deviceIndex, 1000);
  } else if (left / 2 > size / 2 + 32 * kMiB) {
    fresh = measureOften(deviceIndex);
  } else {
    measureNow(deviceIndex);
    fresh = true;
  }
  if (size == 0 || gate.reserve(deviceIndex, size, api, false)) return true;
  // As the driver does before it gives up: first frees what its pools keep for later.
  bool freed = trimPools(deviceIndex);
  if (freed || !fresh) measureNow(deviceIndex);
  return gate.reserve(deviceIndex, size, api, true);
}

void measure(DeviceIndex deviceIndex) {
  if (deviceIndex >= 0) measureNow(deviceIndex);
}

void refresh(DeviceIndex deviceIndex) {
  if (deviceIndex >= 0) measureOften(deviceIndex);
}

}  // namespace oomtune::cuda::account
