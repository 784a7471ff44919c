#include "admit.h"

#include "measure.h"
#include "pools.h"

namespace oomtune::cuda::account {

namespace {

constexpr uint64_t kMiB = 1ULL << 20;

}  // namespace

bool admit(Place place, uint64_t size, const char* api) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return true;
  const uint64_t left = gate.available(place);
  bool fresh = false;
  if (left == kNoBudget || left / 2 > size / 2 + 512 * kMiB) {
    fresh = measureOften(place, 1000);
  } else if (left / 2 > size / 2 + 32 * kMiB) {
    fresh = measureOften(place);
  } else {
    measureNow(place);
    fresh = true;
  }
  if (size == 0 || gate.reserve(place, size, api, false)) return true;
  // As the driver does before it gives up: what its pools only keep for later goes back first.
  bool freed = trimPools(place);
  if (freed || !fresh) measureNow(place);
  return gate.reserve(place, size, api, true);
}

void measure(Place place) {
  if (place >= 0) measureNow(place);
}

void refresh(Place place) {
  if (place >= 0) measureOften(place);
}

}  // namespace oomtune::cuda::account
