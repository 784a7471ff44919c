#pragma once

#include <napi.h>

namespace oomtune {

/**
 * holdLock(path): takes the kernel's lock (flock) on a file or folder that is there, without waiting, and returns a
 * descriptor that has it: the lock goes with that, and with this process. Null: somebody else has it. Throws, with
 * `code` an errno's name, where it cannot be opened or locked.
 */
Napi::Value holdLock(const Napi::CallbackInfo& info);

}  // namespace oomtune
