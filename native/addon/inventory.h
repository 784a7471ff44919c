#pragma once

#include <napi.h>

namespace oomtune {

/** inventory(): a promise of NVML's figures: {found, driver, error, gpus: [...]}. */
Napi::Value inventory(const Napi::CallbackInfo& info);

}  // namespace oomtune
