#include "imports.h"

#include "process.h"
#include "table.h"
#include "watch.h"

namespace oomtune::cuda {

namespace {

using account::Place;

// Asking takes a while, and programs import by the hundred: once it is clear that nothing shows, stop.
constexpr int kEnough = 4;
constexpr int kAttempts = 4;

/** Both figures of a moment at which no other thread was allocating, if there was one. */
bool look(Watch& watch, Place place, BeforeImport* seen) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t changes = changesNow();
    seen->hooked = hookedNow(place);
    const bool moved = account::unsettled();
    if (nvmlProcessBytes(watch.nvml, currentPid(), &seen->used) != Figure::kFound) return false;
    if (!moved && !account::unsettled() && changesNow() == changes) break;
  }
  return true;
}

}  // namespace

BeforeImport beforeImport(Place place) {
  BeforeImport seen{0, 0};
  if (place < 0 || !account::gate().attached() || !watching()) return seen;
  Watch& watch = watchOf(place);
  Lock lock(watch.mutex);
  if (watch.importsUnseen >= kEnough || !watch.pidIsOurs || !look(watch, place, &seen)) return BeforeImport{0, 0};
  return seen;
}

uint64_t afterImport(Place place, BeforeImport before, uint64_t size) {
  if (place < 0 || before.used == 0) return 0;
  Watch& watch = watchOf(place);
  Lock lock(watch.mutex);
  BeforeImport now{0, 0};
  if (!look(watch, place, &now)) return 0;
  // What other threads allocated meanwhile is in both figures.
  const uint64_t hooked = now.hooked > before.hooked ? now.hooked - before.hooked : 0;
  if (now.used <= before.used + hooked) {
    ++watch.importsUnseen;
    return 0;
  }
  uint64_t seen = now.used - before.used - hooked;
  if (size != 0 && seen > account::physical(size)) seen = account::physical(size);
  watch.importedSeen.fetch_add(seen);
  return seen;
}

void importGone(Place place, uint64_t seen) {
  if (place >= 0) watchOf(place).importedSeen.fetch_sub(seen);
}

}  // namespace oomtune::cuda
