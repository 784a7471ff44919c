#include "imported_memory.h"

#include "device_watch.h"
#include "hash_table.h"
#include "process.h"

namespace oomtune::cuda {

namespace {

using account::DeviceIndex;

// Asking takes a while, and programs import by the hundred: once it is clear that nothing shows, stop.
constexpr int kEnough = 4;
constexpr int kAttempts = 4;

/** Both figures of a moment at which no other thread was allocating, if there was one. */
bool look(DeviceWatch& watch, DeviceIndex deviceIndex, BeforeImport* seen) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t changes = changesNow();
    seen->hooked = hookedNow(deviceIndex);
    const bool moved = account::driverCallUnderWay();
    if (nvmlProcessBytes(watch.nvml, currentPid(), &seen->used) != Lookup::kFound) return false;
    if (!moved && !account::driverCallUnderWay() && changesNow() == changes) break;
  }
  return true;
}

}  // namespace

BeforeImport beforeImport(DeviceIndex deviceIndex) {
  BeforeImport seen{0, 0};
  if (deviceIndex < 0 || !account::gate().attached() || !watching()) return seen;
  DeviceWatch& watch = watchOf(deviceIndex);
  Lock lock(watch.mutex);
  if (watch.importsUnseen >= kEnough || !watch.pidIsOurs || !look(watch, deviceIndex, &seen)) return BeforeImport{0, 0};
  return seen;
}

uint64_t afterImport(DeviceIndex deviceIndex, BeforeImport before, uint64_t size) {
  if (deviceIndex < 0 || before.used == 0) return 0;
  DeviceWatch& watch = watchOf(deviceIndex);
  Lock lock(watch.mutex);
  BeforeImport now{0, 0};
  if (!look(watch, deviceIndex, &now)) return 0;
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

void importGone(DeviceIndex deviceIndex, uint64_t seen) {
  if (deviceIndex >= 0) watchOf(deviceIndex).importedSeen.fetch_sub(seen);
}

}  // namespace oomtune::cuda
