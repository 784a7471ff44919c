#include "lifetime.h"

#include <pthread.h>
#include <stdlib.h>

#include <atomic>

#include "graph_hooks.h"
#include "measure.h"
#include "pools.h"
#include "process_gate.h"
#include "real.h"
#include "table.h"
#include "tables.h"
#include "vmm.h"
#include "watch.h"

namespace oomtune::cuda::account {

namespace {

std::atomic<bool> begun{false};
pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

/** In a forked child: everything that was noted is the parent's, and a lock may be held by a thread that is not here.
 */
void forgetParent() {
  beginning = PTHREAD_MUTEX_INITIALIZER;
  forgetTables();
  forgetVmm();
  forgetPools();
  forgetGraphs();
  forgetWatches();
}

/** The last look: what the process held besides may have grown since its last allocation. */
void atEnd() {
  if (!gateIsOwn()) return;
  for (Place place = 1; place < static_cast<Place>(kDevices); ++place) {
    if (gate().overhead(place) != 0) measureAtEnd(place);
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
