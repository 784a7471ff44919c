#pragma once

#include <napi.h>

namespace oomtune {

/**
 * spawnSupervisor(executable, folder, inherit): a promise of the supervisor's pid, kept once the job has been started
 * or could not be (then exit.json is there). The supervisor is a child of init, not of this process. `inherit`: it gets
 * this process's standard streams.
 */
Napi::Value spawnSupervisor(const Napi::CallbackInfo& info);

}  // namespace oomtune
