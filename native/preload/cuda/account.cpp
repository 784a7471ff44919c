#include "account.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "driver.h"
#include "measure.h"
#include "pools.h"
#include "real.h"
#include "table.h"
#include "tables.h"

namespace oomtune::cuda::account {

namespace {

constexpr int kOrdinals = 64;
constexpr uint64_t kMiB = 1ULL << 20;

Gate theGate;
std::atomic<bool> begun{false};
std::atomic<bool> inChild{false};
pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
int devices = 0;
Place places[kOrdinals];
Device ordinals[kDevices];
std::atomic<int> underWay{0};

void afterFork() {
  // Cheap, as most children only call exec: the slot is taken when the child first counts something.
  inChild.store(true);
}

/** The last look: what the process held besides may have grown since its last allocation. */
void atEnd() {
  if (inChild.load()) return;
  for (Place place = 1; place < static_cast<Place>(kDevices); ++place) {
    if (theGate.overhead(place) != 0) measureAtEnd(place);
  }
}

void startAnew() {
  beginning = PTHREAD_MUTEX_INITIALIZER;
  underWay.store(0);
  theGate.forked();
  forgetTables();
  forgetPools();
  forgetMeasurements();
}

void uuidText(const char* kind, const Uuid& uuid, char* out) {
  static const char kHex[] = "0123456789abcdef";
  strcpy(out, kind);
  char* at = out + strlen(kind);
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kHex[uuid.bytes[i] >> 4];
    *at++ = kHex[uuid.bytes[i] & 15];
  }
  *at = '\0';
}

bool ledgerKnowsUuids() {
  for (uint32_t d = 1; d < kDevices; ++d) {
    const DeviceEntry& entry = theGate.ledger()->devices[d];
    if (entry.present.load() == 1 && entry.uuid[0] != '\0') return true;
  }
  return false;
}

/** By uuid, as a rank may have narrowed or reordered what it sees; by ordinal where the launcher knew no uuids. */
Place findPlace(Device ordinal) {
  if (!ledgerKnowsUuids()) return ordinal + 1 < static_cast<int>(kDevices) ? ordinal + 1 : kNowhere;
  Uuid uuid{};
  if (driver.deviceGetUuid == nullptr || driver.deviceGetUuid(&uuid, ordinal) != kSuccess) return kNowhere;
  char text[64];
  uuidText("GPU-", uuid, text);
  Place place = theGate.deviceByUuid(text);
  if (place >= 0) return place;
  uuidText("MIG-", uuid, text);
  return theGate.deviceByUuid(text);
}

void learnDevices() {
  for (Place& place : places) place = kNowhere;
  for (Device& ordinal : ordinals) ordinal = -1;
  int count = 0;
  if (driver.deviceGetCount == nullptr || driver.deviceGetCount(&count) != kSuccess) return;
  for (Device ordinal = 0; ordinal < count && ordinal < kOrdinals; ++ordinal) {
    Place place = findPlace(ordinal);
    places[ordinal] = place;
    if (place < 0) continue;
    ordinals[place] = ordinal;
    char bus[32] = "";
    char mig[64] = "";
    Uuid uuid{};
    if (driver.deviceGetPciBusId != nullptr) driver.deviceGetPciBusId(bus, sizeof bus, ordinal);
    if (driver.deviceGetUuid != nullptr && driver.deviceGetUuid(&uuid, ordinal) == kSuccess) {
      uuidText("MIG-", uuid, mig);
    }
    watchDevice(place, bus, mig);
  }
  devices = count;
}

}  // namespace

void begin() {
  if (begun.load(std::memory_order_acquire)) return;
  Lock lock(beginning);
  if (begun.load()) return;
  const char* path = getenv("OOMTUNE_LEDGER");
  if (path != nullptr && path[0] != '\0') {
    if (theGate.attach(path)) {
      pthread_atfork(nullptr, nullptr, afterFork);
      learnDevices();
      atexit(atEnd);
    } else {
      debugLine("the ledger %s cannot be used: nothing is counted", path);
    }
  }
  begun.store(true, std::memory_order_release);
}

Gate& gate() {
  if (inChild.load(std::memory_order_relaxed) && inChild.exchange(false)) startAnew();
  return theGate;
}

Place placeOf(Device ordinal) {
  if (!begun.load(std::memory_order_acquire) || ordinal < 0 || ordinal >= devices || ordinal >= kOrdinals) {
    return kNowhere;
  }
  return places[ordinal];
}

Place placeOfCurrent() {
  if (!begun.load(std::memory_order_acquire) || !theGate.attached()) return kNowhere;
  if (devices == 1) return places[0];
  Device ordinal = -1;
  if (driver.ctxGetDevice == nullptr || driver.ctxGetDevice(&ordinal) != kSuccess) return kNowhere;
  return placeOf(ordinal);
}

Place placeOfStream(Stream stream) {
  // 0, 1 and 2 mean the default streams of the current context.
  if (devices <= 1 || reinterpret_cast<uintptr_t>(stream) <= 2) return placeOfCurrent();
  Device ordinal = -1;
  if (driver.streamGetDevice != nullptr && driver.streamGetDevice(stream, &ordinal) == kSuccess) {
    return placeOf(ordinal);
  }
  Context context = nullptr;
  if (driver.streamGetCtx == nullptr || driver.streamGetCtx(stream, &context) != kSuccess ||
      driver.ctxPushCurrent == nullptr || driver.ctxPushCurrent(context) != kSuccess) {
    return placeOfCurrent();
  }
  Place place = placeOfCurrent();
  driver.ctxPopCurrent(&context);
  return place;
}

Device ordinalOf(Place place) { return place > 0 && place < static_cast<Place>(kDevices) ? ordinals[place] : -1; }

uint64_t physical(uint64_t size) { return size > kMiB ? (size + 2 * kMiB - 1) & ~(2 * kMiB - 1) : size; }

bool admit(Place place, uint64_t size, const char* api) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return true;
  const uint64_t left = gate.available(place);
  bool fresh = false;
  if (left == kNoBudget || left > size + 1024 * kMiB) {
    fresh = measureOften(place, 1000);
  } else if (left > size + 64 * kMiB) {
    fresh = measureOften(place);
  } else {
    measureNow(place);
    fresh = true;
  }
  if (gate.reserve(place, size, api, false)) return true;
  // As the driver does before it gives up: what its pools only keep for later goes back first.
  bool freed = trimPools(place);
  if (freed || !fresh) measureNow(place);
  return gate.reserve(place, size, api, true);
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

void refused(Place place, uint64_t size, const char* api, RefusedBy by) {
  if (place >= 0) gate().refuse(place, size, api, by);
}

Unsettled::Unsettled() { underWay.fetch_add(1); }
Unsettled::~Unsettled() { underWay.fetch_sub(1); }
bool unsettled() { return underWay.load() != 0; }

void blind(Blind reason) { gate().markBlind(reason); }

void measure(Place place) {
  if (place >= 0) measureNow(place);
}

void refresh(Place place) {
  if (place >= 0) measureOften(place);
}

bool overBudget(Place place) {
  Gate& gate = account::gate();
  if (place < 0 || !gate.attached()) return false;
  const uint64_t budget = gate.budget(place);
  return budget != kNoBudget && gate.ledger()->devices[place].committed.load() > budget;
}

uint64_t available(Place place) { return place >= 0 ? gate().available(place) : kNoBudget; }

}  // namespace oomtune::cuda::account
