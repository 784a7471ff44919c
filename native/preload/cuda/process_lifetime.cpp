#include "process_lifetime.h"

#include <pthread.h>
#include <stdlib.h>

#include <atomic>

#include "allocation_tables.h"
#include "device_watch.h"
#include "graph_hooks.h"
#include "hash_table.h"
#include "overhead.h"
#include "pools.h"
#include "process_gate.h"
#include "real_library.h"
#include "vmm.h"

namespace oomtune::cuda::account {

namespace {

std::atomic<bool> begun{false};
pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

/** In a forked child: all records are the parent's, and a lock may be held by a thread that does not exist here. */
void forgetParent() {
  beginning = PTHREAD_MUTEX_INITIALIZER;
  forgetTables();
  forgetVmm();
  forgetPools();
  forgetGraphs();
  forgetWatches();
}

/** Measures a last time: overhead may have grown since the last allocation. */
void atEnd() {
  if (!gateIsOwn()) return;
  for (DeviceIndex deviceIndex = 1; deviceIndex < static_cast<DeviceIndex>(kDevices); ++deviceIndex) {
    if (gate().overhead(deviceIndex) != 0) measureAtEnd(deviceIndex);
  }
}

}  // namespace

void begin() {
  if (begun.load(std::memory_order_acquire)) return;
  Lock lock(beginning);
  if (begun.load()) return;
  const char* path = getenv("OOMTUNE_LEDGER");
  if (path != nullptr && path[0] != '\0') {
    if (attachGate(path, forgetParent)) {
      learnDevices(watchDevice);
      atexit(atEnd);
    } else {
      debugLine("the ledger %s cannot be used: nothing is counted", path);
    }
  }
  begun.store(true, std::memory_order_release);
}

}  // namespace oomtune::cuda::account
