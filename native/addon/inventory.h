#pragma once

#include <napi.h>

namespace oomtune {

/** inventory(): a promise of what NVML tells: {found, driver, error, gpus: [...]}. */
Napi::Value inventory(const Napi::CallbackInfo& info);

}  // namespace oomtune
