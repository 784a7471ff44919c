#pragma once

#include <napi.h>

namespace oomtune {

/**
 * holdLock(path): takes the kernel's lock (flock) on an existing file or folder, without waiting, and returns a
 * descriptor that holds it until it is closed or this process ends. Null: somebody else holds the lock. Throws, with an
 * errno's name as `code`, if it cannot be opened or locked.
 */
Napi::Value holdLock(const Napi::CallbackInfo& info);

}  // namespace oomtune
