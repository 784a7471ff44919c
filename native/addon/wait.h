#pragma once

#include <napi.h>

namespace oomtune {

/**
 * waitForProcess(pid, startTime): a promise kept when the process with this pid and start time is gone, be it ours or
 * not. One thread a wait, asleep on a pidfd; it looks at /proc where the kernel has no pidfds (before 5.3).
 */
Napi::Value waitForProcess(const Napi::CallbackInfo& info);

}  // namespace oomtune
