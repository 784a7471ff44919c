// The functions that TypeScript calls. It checks the arguments; users never call these.
#include <napi.h>

#include "inventory.h"
#include "lock.h"
#include "peer.h"
#include "read_ledger.h"
#include "stream.h"
#include "supervisor_start.h"
#include "wait.h"

namespace {

Napi::Object start(Napi::Env env, Napi::Object exports) {
  exports.Set("version", Napi::String::New(env, OOMTUNE_VERSION));
  exports.Set("inventory", Napi::Function::New(env, oomtune::inventory));
  exports.Set("readLedger", Napi::Function::New(env, oomtune::readLedgerFile));
  exports.Set("holdLock", Napi::Function::New(env, oomtune::holdLock));
  exports.Set("spawnSupervisor", Napi::Function::New(env, oomtune::spawnSupervisor));
  exports.Set("waitForProcess", Napi::Function::New(env, oomtune::waitForProcess));
  exports.Set("peerCredentials", Napi::Function::New(env, oomtune::peerCredentials));
  exports.Set("accountOf", Napi::Function::New(env, oomtune::accountOf));
  exports.Set("peekStream", Napi::Function::New(env, oomtune::peekStream));
  exports.Set("groupNamed", Napi::Function::New(env, oomtune::groupNamed));
  return exports;
}

}  // namespace

NODE_API_MODULE(oomtune, start)
