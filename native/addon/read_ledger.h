#pragma once

#include <napi.h>

namespace oomtune {

/** readLedger(path): a plain copy of the ledger in that file, null if there is none that this build can read. */
Napi::Value readLedgerFile(const Napi::CallbackInfo& info);

}  // namespace oomtune
