#include "inventory.h"

#include <utility>

#include "nvml.h"

namespace oomtune {

namespace {

/** Null: below zero, which stands for a figure that is not told. */
Napi::Value figure(Napi::Env env, double value) {
  return value < 0 ? env.Null() : Napi::Value(Napi::Number::New(env, value));
}

Napi::Object gpuObject(Napi::Env env, const Gpu& gpu) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("index", Napi::Number::New(env, gpu.index));
  out.Set("mig", Napi::Number::New(env, gpu.mig));
  out.Set("uuid", gpu.uuid);
  out.Set("parent", gpu.parent);
  out.Set("bus", gpu.bus);
  out.Set("model", gpu.model);
  out.Set("fault", gpu.fault);
  out.Set("total_bytes", Napi::Number::New(env, static_cast<double>(gpu.total)));
  out.Set("used_bytes", Napi::Number::New(env, static_cast<double>(gpu.used)));
  out.Set("utilisation_pct", figure(env, gpu.utilisation));
  out.Set("temperature_c", figure(env, gpu.temperature));
  out.Set("power_w", figure(env, gpu.power < 0 ? -1 : static_cast<double>(gpu.power) / 1000));
  out.Set("processes_told", Napi::Boolean::New(env, gpu.processesTold));
  Napi::Array processes = Napi::Array::New(env, gpu.processes.size());
  for (uint32_t i = 0; i < gpu.processes.size(); ++i) {
    const GpuProcess& process = gpu.processes[i];
    Napi::Object entry = Napi::Object::New(env);
    entry.Set("pid", Napi::Number::New(env, process.pid));
    entry.Set("name", process.name);
    entry.Set("used_bytes",
              process.known ? Napi::Value(Napi::Number::New(env, static_cast<double>(process.used))) : env.Null());
    processes.Set(i, entry);
  }
  out.Set("processes", processes);
  return out;
}

class Asker : public Napi::AsyncWorker {
 public:
  explicit Asker(Napi::Env env) : Napi::AsyncWorker(env), promise_(Napi::Promise::Deferred::New(env)) {}
  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override { inventory_ = askNvml(); }

  void OnOK() override {
    Napi::Env env = Env();
    Napi::Object out = Napi::Object::New(env);
    out.Set("found", Napi::Boolean::New(env, inventory_.found));
    out.Set("driver", inventory_.driver);
    out.Set("error", inventory_.error);
    Napi::Array gpus = Napi::Array::New(env, inventory_.gpus.size());
    for (uint32_t i = 0; i < inventory_.gpus.size(); ++i) gpus.Set(i, gpuObject(env, inventory_.gpus[i]));
    out.Set("gpus", gpus);
    promise_.Resolve(out);
  }

  void OnError(const Napi::Error& error) override { promise_.Reject(error.Value()); }

 private:
  Napi::Promise::Deferred promise_;
  GpuInventory inventory_;
};

}  // namespace

Napi::Value inventory(const Napi::CallbackInfo& info) {
  auto* asker = new Asker(info.Env());
  asker->Queue();
  return asker->promise();
}

}  // namespace oomtune
