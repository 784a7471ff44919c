// Makes and reads ledgers without Node, for tests and benchmarks.
//
//   oomtune-ledger create PATH INDEX BUDGET|none UUID|- [INDEX BUDGET UUID]…    (index 0: host, 1 + n: CUDA ordinal n)
//   oomtune-ledger read PATH                                                    (one JSON document)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "ledger_snapshot.h"

using namespace oomtune;

namespace {

int create(int count, char** arguments) {
  DeviceSetup devices[kDevices];
  char names[kDevices][16];
  uint32_t used = 0;
  for (int i = 1; i + 2 < count && used < kDevices; i += 3, ++used) {
    const uint32_t index = static_cast<uint32_t>(strtoul(arguments[i], nullptr, 10));
    snprintf(names[used], sizeof names[used], index == 0 ? "cpu" : "cuda:%u", index - 1);
    const uint64_t budget = strcmp(arguments[i + 1], "none") == 0 ? kNoBudget : strtoull(arguments[i + 1], nullptr, 0);
    devices[used] = DeviceSetup{index, budget, names[used], strcmp(arguments[i + 2], "-") == 0 ? "" : arguments[i + 2]};
  }
  int error = createLedger(arguments[0], devices, used);
  if (error != 0) fprintf(stderr, "cannot make %s: %s\n", arguments[0], strerror(error));
  return error == 0 ? 0 : 1;
}

const char* const kKindNames[kKinds] = {"classic", "managed", "async", "vmm", "graph", "array", "pinned", "ipc"};

int show(const char* path) {
  static LedgerSnapshot snapshot;
  Ledger* ledger = mapLedger(path, false);
  if (ledger == nullptr || !readLedger(ledger, &snapshot)) {
    fprintf(stderr, "%s is no ledger\n", path);
    return 1;
  }
  printf("{\"refused\":%llu,\"blind\":%u,\"processes\":%u,\"devices\":[",
         static_cast<unsigned long long>(snapshot.refused), snapshot.blind, snapshot.processes);
  for (uint32_t i = 0; i < snapshot.deviceCount; ++i) {
    const DeviceSnapshot& device = snapshot.devices[i];
    printf("%s{\"index\":%u,\"live\":%llu,\"peak\":%llu,\"overhead\":%llu,\"refused\":%llu,\"measured\":%u,\"kinds\":{",
           i ? "," : "", device.index, static_cast<unsigned long long>(device.live),
           static_cast<unsigned long long>(device.peak), static_cast<unsigned long long>(device.overhead),
           static_cast<unsigned long long>(device.refused), device.measured);
    for (uint32_t kind = 0; kind < kKinds; ++kind) {
      printf("%s\"%s\":%llu", kind ? "," : "", kKindNames[kind], static_cast<unsigned long long>(device.kinds[kind]));
    }
    printf("}}");
  }
  printf("],\"refusals\":[");
  for (uint32_t i = 0; i < snapshot.refusalCount; ++i) {
    const RefusalSnapshot& refusal = snapshot.refusals[i];
    printf("%s{\"api\":\"%s\",\"size\":%llu,\"live\":%llu,\"budget\":%llu,\"pid\":%u,\"device\":%u,\"by\":\"%s\"}",
           i ? "," : "", refusal.api, static_cast<unsigned long long>(refusal.size),
           static_cast<unsigned long long>(refusal.live),
           static_cast<unsigned long long>(refusal.budget == kNoBudget ? 0 : refusal.budget), refusal.pid,
           refusal.device, refusal.by == kByDriver ? "driver" : "budget");
  }
  printf("]}\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count >= 3 && strcmp(arguments[1], "create") == 0) return create(count - 2, arguments + 2);
  if (count == 3 && strcmp(arguments[1], "read") == 0) return show(arguments[2]);
  fprintf(stderr, "usage: %s create PATH INDEX BUDGET UUID… | read PATH\n", arguments[0]);
  return 2;
}
