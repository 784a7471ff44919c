#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <atomic>

#include "compat.h"
#include "process_gate.h"
#include "real_library.h"
#include "trampolines.h"
#include "unlisted_symbols.h"

asm(OOMTUNE_TRAMPOLINES_BEGIN
#define SYMBOL(name) OOMTUNE_TRAMPOLINE(name)
#include "symbols.def"
#undef SYMBOL
        OOMTUNE_TRAMPOLINES_END);

// Marks this library, so that no stand-in ever takes another for the real driver.
extern "C" __attribute__((visibility("default"))) const char oomtune_standin[] = "libcuda.so.1";

namespace oomtune::cuda {

namespace {

const char* const kNames[] = {
#define SYMBOL(name) #name,
#include "symbols.def"
#undef SYMBOL
};
constexpr size_t kCount = sizeof kNames / sizeof kNames[0];

const HookList* const kLists[] = {&kContextHooks, &kLinearHooks, &kHostHooks,  &kPoolHooks,
                                  &kVmmHooks,     &kGraphHooks,  &kArrayHooks, &kFirstHooks};

enum State { kClosed, kOpening, kOpen, kAbsent };
std::atomic<int> state{kClosed};
pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
std::atomic<uint64_t> opener{0};

/** Every function of the list that the driver has, by its address; `hook` is null where there is none. */
struct Known {
  void* real;
  void* hook;
};
constexpr size_t kKnown = 4096;
static_assert(kKnown >= 4 * kCount, "the table of known functions must stay sparse");
Known known[kKnown];

Known& knownCell(void* real) {
  size_t at = (reinterpret_cast<uintptr_t>(real) >> 4) * 0x9e3779b97f4a7c15ULL >> 52;
  while (known[at % kKnown].real != nullptr && known[at % kKnown].real != real) ++at;
  return known[at % kKnown];
}

const Hook* findHook(const char* name) {
  for (const HookList* list : kLists) {
    for (size_t i = 0; i < list->count; ++i) {
      if (strcmp(list->hooks[i].name, name) == 0) return &list->hooks[i];
    }
  }
  return nullptr;
}

// Called in place of a function that this driver does not have.
Result missing() { return kNotFound; }
// Called in place of any function if there is no driver.
Result noDriver() { return kNoDevice; }

void fillSlots(void* handle) {
  for (size_t i = 0; i < kCount; ++i) {
    void* real = handle != nullptr ? dlsym(handle, kNames[i]) : nullptr;
    const Hook* hook = findHook(kNames[i]);
    void* target = real;
    if (real == nullptr) {
      target = reinterpret_cast<void*>(handle != nullptr ? missing : noDriver);
    } else {
      Known& cell = knownCell(real);
      cell.real = real;
      if (hook != nullptr) {
        cell.hook = target = hook->hook;
        *hook->real = real;
      }
    }
    __atomic_store_n(&oomtune_slots[i], target, __ATOMIC_RELEASE);
  }
}

/** "cuMemAlloc_v2_ptsz" → length of "cuMemAlloc". */
size_t stemLength(const char* name) {
  size_t length = strlen(name);
  if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0)) length -= 5;
  if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') length -= 3;
  return length;
}

bool stemIsHooked(const char* symbol) {
  size_t length = stemLength(symbol);
  for (const HookList* list : kLists) {
    for (size_t i = 0; i < list->count; ++i) {
      const char* name = list->hooks[i].name;
      if (stemLength(name) == length && strncmp(name, symbol, length) == 0) return true;
    }
  }
  return false;
}

bool listed(const char* name) {
  size_t low = 0;
  size_t high = kCount;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(kNames[middle], name);
    if (order == 0) return true;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return false;
}

}  // namespace

bool openDriver() {
  int seen = state.load(std::memory_order_acquire);
  if (seen == kOpen || seen == kAbsent) return seen == kOpen;
  // The driver's own constructors may come back here in the same thread.
  uint64_t self = reinterpret_cast<uint64_t>(__builtin_thread_pointer());
  if (opener.load() == self) return false;
  pthread_mutex_lock(&opening);
  if (state.load() == kClosed) {
    opener.store(self);
    void* handle = openReal("OOMTUNE_CUDA_DRIVER", "libcuda.so.1", nullptr, driverPath, sizeof driverPath);
    if (handle != nullptr) {
      bindCalls(handle);
      debugLine("the real driver is %s", driverPath);
      warnOfUnlisted(handle, listed, "cu");
    }
    fillSlots(handle);
    state.store(handle != nullptr ? kOpen : kAbsent, std::memory_order_release);
    opener.store(0);
  }
  pthread_mutex_unlock(&opening);
  return state.load() == kOpen;
}

void* substitute(const char* symbol, void* resolved) {
  Known& cell = knownCell(resolved);
  if (cell.real == resolved) return cell.hook != nullptr ? cell.hook : resolved;
  // A newer, unknown version of a hooked function: passed through, and the launch's figures are marked incomplete.
  if (symbol != nullptr && stemIsHooked(symbol)) {
    account::markBlind(kBlindHook);
    debugLine("the driver has a newer %s than this build knows: what it allocates is not counted", symbol);
  }
  return resolved;
}

}  // namespace oomtune::cuda

void* oomtune_resolve(void** slot) {
  using namespace oomtune::cuda;
  if (!openDriver() && state.load() != kAbsent) return reinterpret_cast<void*>(noDriver);
  return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}
