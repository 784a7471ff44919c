#include <memory>
#include <string>

#include "file.h"
#include "ledger_snapshot.h"
#include "read_ledger.h"

namespace oomtune {

namespace {

// Figures are below 2^53 by the time they are here: a double holds them exactly.
Napi::Number bytes(Napi::Env env, uint64_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

Napi::Value budget(Napi::Env env, uint64_t value) {
  return value < (1ULL << 53) ? Napi::Value(bytes(env, value)) : env.Null();
}

const char* deviceName(const LedgerSnapshot& snapshot, uint32_t index) {
  for (uint32_t i = 0; i < snapshot.deviceCount; ++i) {
    if (snapshot.devices[i].index == index) return snapshot.devices[i].name;
  }
  return "";
}

Napi::Value measured(Napi::Env env, uint32_t by) {
  if (by == kMeasuredByProcess) return Napi::String::New(env, "process");
  if (by == kMeasuredByDevice) return Napi::String::New(env, "device");
  return env.Null();
}

const char* const kKindNames[kKinds] = {"classic", "managed", "async", "vmm", "graph", "array", "host_pinned", "ipc"};

Napi::Object deviceObject(Napi::Env env, const DeviceSnapshot& device) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("device", device.name);
  out.Set("live_bytes", bytes(env, device.live));
  out.Set("peak_bytes", bytes(env, device.peak));
  out.Set("overhead_bytes", bytes(env, device.overhead));
  out.Set("budget_bytes", budget(env, device.budget));
  out.Set("refused", bytes(env, device.refused));
  out.Set("measured", measured(env, device.measured));
  Napi::Object kinds = Napi::Object::New(env);
  for (uint32_t k = 0; k < kKinds; ++k) kinds.Set(kKindNames[k], bytes(env, device.kinds[k]));
  out.Set("kinds", kinds);
  return out;
}

Napi::Object refusalObject(Napi::Env env, const LedgerSnapshot& snapshot, const RefusalSnapshot& refusal) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("pid", Napi::Number::New(env, refusal.pid));
  out.Set("tid", Napi::Number::New(env, refusal.tid));
  out.Set("api", refusal.api);
  // A program may ask for any size: what a double cannot hold exactly is rounded.
  out.Set("size_bytes", bytes(env, refusal.size));
  out.Set("live_bytes", bytes(env, refusal.live));
  out.Set("budget_bytes", budget(env, refusal.budget));
  out.Set("by", refusal.by == kByDriver ? "driver" : "budget");
  out.Set("device", deviceName(snapshot, refusal.device));
  const uint64_t milliseconds = refusal.at / 1000000;
  out.Set("at_ms", Napi::Number::New(env, static_cast<double>(milliseconds)));
  return out;
}

}  // namespace

Napi::Value readLedgerFile(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  // Copied, not mapped: the job can cut the file short at any moment, and a daemon must not die of it.
  auto ledger = std::make_unique<Ledger>();
  if (!copyLedger(info[0].As<Napi::String>().Utf8Value().c_str(), ledger.get())) return env.Null();
  auto snapshot = std::make_unique<LedgerSnapshot>();
  if (!readLedger(ledger.get(), snapshot.get())) return env.Null();
  Napi::Object out = Napi::Object::New(env);
  Napi::Array devices = Napi::Array::New(env, snapshot->deviceCount);
  for (uint32_t i = 0; i < snapshot->deviceCount; ++i) devices.Set(i, deviceObject(env, snapshot->devices[i]));
  Napi::Array refusals = Napi::Array::New(env, snapshot->refusalCount);
  for (uint32_t i = 0; i < snapshot->refusalCount; ++i) {
    refusals.Set(i, refusalObject(env, *snapshot, snapshot->refusals[i]));
  }
  out.Set("devices", devices);
  out.Set("refusals", refusals);
  out.Set("refused", bytes(env, snapshot->refused));
  out.Set("processes", Napi::Number::New(env, snapshot->processes));
  out.Set("claims", bytes(env, snapshot->claims));
  out.Set("blind", Napi::Number::New(env, snapshot->blind));
  return out;
}

}  // namespace oomtune
