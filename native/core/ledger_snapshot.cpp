#include "ledger_snapshot.h"

#include <cstring>

#include "file.h"

namespace oomtune {

namespace {

// No device holds more than 2^53 bytes: a larger figure is an overwritten counter, and JavaScript could not hold it
// either.
constexpr uint64_t kLargest = 1ULL << 53;

uint64_t plausible(uint64_t value) { return value < kLargest ? value : 0; }

void copyText(char* to, const char* from, size_t capacity) {
  size_t length = 0;
  while (length < capacity - 1 && from[length] > ' ' && from[length] < 127) ++length;
  std::memcpy(to, from, length);
  to[length] = '\0';
}

bool readRefusal(const Ledger* ledger, uint64_t index, RefusalSnapshot* out) {
  const RefusalEntry& entry = ledger->refusals[index % kRefusals];
  const uint64_t whole = 2 * index + 2;
  if (entry.sequence.load() != whole) return false;
  out->at = entry.atNanoseconds.load();
  out->size = entry.size.load();
  out->live = plausible(entry.live.load());
  out->budget = entry.budget.load();
  out->pid = entry.pid.load();
  out->tid = entry.tid.load();
  out->device = entry.device.load();
  out->by = entry.by.load();
  char api[32];
  for (size_t i = 0; i < 4; ++i) {
    uint64_t part = entry.api[i].load();
    std::memcpy(api + 8 * i, &part, sizeof part);
  }
  copyText(out->api, api, sizeof out->api);
  if (entry.sequence.load() != whole) return false;
  return out->device < kDevices && (out->by == kByBudget || out->by == kByDriver);
}

}  // namespace

bool readLedger(const Ledger* ledger, LedgerSnapshot* out) {
  if (!ledgerSound(ledger, sizeof(Ledger))) return false;
  *out = LedgerSnapshot{};
  for (uint32_t d = 0; d < kDevices; ++d) {
    const DeviceEntry& entry = ledger->devices[d];
    if (entry.present.load() != 1) continue;
    DeviceSnapshot& device = out->devices[out->deviceCount++];
    device.index = d;
    copyText(device.name, entry.name, sizeof device.name);
    device.live = plausible(entry.live.load());
    device.peak = plausible(entry.peak.load());
    const uint64_t budget = entry.budget.load();
    device.budget = budget < kLargest ? budget : kNoBudget;
    device.refused = plausible(entry.refused.load());
    const uint32_t measured = entry.measured.load();
    device.measured = measured <= kMeasuredByDevice ? measured : static_cast<uint32_t>(kMeasuredNot);
  }
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (ledger->keys[i].pid.load() == 0) continue;
    ++out->processes;
    for (uint32_t n = 0; n < out->deviceCount; ++n) {
      DeviceSnapshot& device = out->devices[n];
      const SlotDevice& held = ledger->slots[i].devices[device.index];
      device.overhead = plausible(device.overhead + plausible(held.overhead.load()));
      for (uint32_t k = 0; k < kKinds; ++k)
        device.kinds[k] = plausible(device.kinds[k] + plausible(held.kinds[k].load()));
    }
  }
  out->refused = plausible(ledger->refused.load());
  out->claims = plausible(ledger->claims.load());
  out->blind = ledger->blind.load();
  const uint64_t first = out->refused > kRefusals ? out->refused - kRefusals : 0;
  for (uint64_t i = first; i < out->refused; ++i) {
    if (readRefusal(ledger, i, &out->refusals[out->refusalCount])) ++out->refusalCount;
  }
  return true;
}

}  // namespace oomtune
