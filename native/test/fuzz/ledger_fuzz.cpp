// A ledger into which a job has written: the supervisor reads it and takes back what the dead held, other processes of
// the job count in it. None of that may crash, hang or read outside of it. The input is a list of writes: where, how,
// what.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "budget_gate.h"
#include "file.h"
#include "ledger_snapshot.h"
#include "slots.h"
#include "target.h"

using namespace oomtune;

namespace {

struct Free {
  void operator()(Ledger* ledger) const { free(ledger); }
};

constexpr size_t kWrite = 13;

void writeInto(Ledger* ledger, const uint8_t* write) {
  uint32_t where = 0;
  uint64_t what = 0;
  memcpy(&where, write, sizeof where);
  memcpy(&what, write + 5, sizeof what);
  // Some writes go where they hurt most: the head, the devices, the keys and the refusals.
  const size_t near = offsetof(Ledger, slots);
  const size_t limit = write[4] % 4 == 0 ? sizeof(Ledger) : write[4] % 4 == 1 ? offsetof(Ledger, devices) : near;
  const size_t width = write[4] % 8 < 4 ? 8 : 1 + write[4] % 7;
  memcpy(reinterpret_cast<char*>(ledger) + where % (limit - 8), &what, width);
}

void check(const LedgerSnapshot& reading) {
  HOLD(reading.deviceCount <= kDevices && reading.refusalCount <= kRefusals && reading.processes <= kSlots);
  for (uint32_t i = 0; i < reading.deviceCount; ++i) {
    const DeviceSnapshot& device = reading.devices[i];
    HOLD(device.index < kDevices && strnlen(device.name, sizeof device.name) < sizeof device.name);
    HOLD(device.live < 1ULL << 53 && device.peak < 1ULL << 53 && device.measured <= kMeasuredByDevice);
    // What JavaScript is given as a number must be one that it can hold.
    HOLD(device.overhead < 1ULL << 53 && device.refused < 1ULL << 53);
    for (uint64_t bytes : device.kinds) HOLD(bytes < 1ULL << 53);
  }
  for (uint32_t i = 0; i < reading.refusalCount; ++i) {
    const RefusalSnapshot& refusal = reading.refusals[i];
    HOLD(refusal.device < kDevices && strnlen(refusal.api, sizeof refusal.api) < sizeof refusal.api);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::unique_ptr<Ledger, Free> ledger(static_cast<Ledger*>(calloc(1, sizeof(Ledger))));
  const DeviceSetup devices[] = {{0, 1000, "cpu", ""}, {1, 5000, "cuda:0", "GPU-1"}, {2, kNoBudget, "cuda:1", "GPU-2"}};
  initLedger(ledger.get(), devices, 3);
  BudgetGate gate;
  gate.attachTo(ledger.get());
  for (size_t at = 0; at + kWrite <= size && at < 512 * kWrite; at += kWrite) writeInto(ledger.get(), bytes + at);
  static LedgerSnapshot reading;
  if (readLedger(ledger.get(), &reading)) check(reading);
  reapSlots(ledger.get());
  for (uint32_t device = 0; device < 3; ++device) {
    if (gate.reserve(device, 100, "fuzz")) gate.commit(device, kClassic, 100);
    gate.setOverhead(device, 7);
    gate.release(device, kClassic, 100);
    gate.available(device);
  }
  gate.deviceByUuid("GPU-2");
  claimSlot(ledger.get());
  if (readLedger(ledger.get(), &reading)) check(reading);
  return 0;
}
