// The real driver, opened at the first call, and which of its functions are hooked. Only the hooks know of this file:
// what they build on calls the driver through driver_calls.h.
#pragma once

#include "driver_calls.h"
#include "driver_types.h"

namespace oomtune::cuda {

/**
 * A function of the driver that the stand-in answers itself. `real` receives the driver's own; null where it has none.
 */
struct Hook {
  const char* name;
  void* hook;
  void** real;
};

struct HookList {
  const Hook* hooks;
  size_t count;
};

// One list a file of hooks.
extern const HookList kContextHooks;
extern const HookList kLinearHooks;
extern const HookList kHostHooks;
extern const HookList kPoolHooks;
extern const HookList kVmmHooks;
extern const HookList kGraphHooks;
extern const HookList kArrayHooks;
extern const HookList kFirstHooks;

/** Declares `name_real`, the driver's own function; the body of the hook follows. */
#define OOMTUNE_HOOK(name, ...)                 \
  Result (*name##_real)(__VA_ARGS__) = nullptr; \
  Result name##_hook(__VA_ARGS__)
#define OOMTUNE_HOOKED(name) \
  Hook { #name, reinterpret_cast<void*>(name##_hook), reinterpret_cast<void**>(&name##_real) }

/** Opens the real driver, once. False: there is none. */
bool openDriver();

/**
 * What the driver's own resolver answered, or the hook in its place. Substitution by pointer honours name, version and
 * flags alike, as the resolver has applied them.
 */
void* substitute(const char* symbol, void* resolved);

}  // namespace oomtune::cuda
