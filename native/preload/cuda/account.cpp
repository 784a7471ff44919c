#include "account.h"

#include "watch.h"

namespace oomtune::cuda::account {

namespace {

constexpr uint64_t kMiB = 1ULL << 20;

}  // namespace

uint64_t physical(uint64_t size) {
  if (size <= kMiB || size > UINT64_MAX - 2 * kMiB) return size;  // nothing is that large: the driver will say so
  return (size + 2 * kMiB - 1) & ~(2 * kMiB - 1);
}

void settle(Place place, Kind kind, uint64_t size, Result result, const char* api) {
  Gate& gate = account::gate();
  if (place < 0) return;
  if (result == kSuccess) {
    gate.commit(place, kind, size);
    return;
  }
  gate.cancel(place, size);
  if (result == kOutOfMemory) gate.refuse(place, size, api, kByDriver);
}

void add(Place place, Kind kind, uint64_t size) {
  if (place >= 0) gate().add(place, kind, size);
}

void release(Place place, Kind kind, uint64_t size) {
  if (place < 0) return;
  if (place != static_cast<Place>(kHostDevice)) noteFreed(place);
  gate().release(place, kind, size);
}

void handOver(Place place, Kind kind, uint64_t size) {
  if (place < 0) return;
  // Without figures it would stay charged for good.
  if (gate().ledger()->devices[place].measured.load() == kMeasuredNot) release(place, kind, size);
  else gate().handOver(place, kind, size);
}

void refused(Place place, uint64_t size, const char* api, RefusedBy by) {
  if (place >= 0) gate().refuse(place, size, api, by);
}

bool overBudget(Place place) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return false;
  const uint64_t budget = gate.budget(place);
  return budget != kNoBudget && gate.ledger()->devices[place].committed.load() > budget;
}

uint64_t available(Place place) { return place >= 0 ? gate().available(place) : kNoBudget; }

}  // namespace oomtune::cuda::account
