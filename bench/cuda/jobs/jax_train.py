"""Trains a little with JAX, takes memory until it is refused, lets go, and trains on. argv: preallocate | grow | async"""

import json
import os
import sys
import time

mode = sys.argv[1]
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if mode == "preallocate" else "false"
if mode == "async":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "cuda_async"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

report = {"mode": mode, "jax": jax.__version__, "device": str(jax.devices()[0])}


@jax.jit
def step(w, x):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2)
    return w - 0.01 * jax.grad(loss)(w)


w = jax.random.normal(jax.random.PRNGKey(0), (1024, 1024))
x = jax.random.normal(jax.random.PRNGKey(1), (512, 1024))
for _ in range(5):
    w = step(w, x)
w.block_until_ready()
hoard = []
try:
    for _ in range(4096):
        hoard.append(jax.device_put(jnp.zeros((64 * 2**20,), dtype=jnp.uint8)).block_until_ready())
except Exception as error:
    report["error"] = f"{type(error).__module__}.{type(error).__qualname__}"
    report["is_own_oom"] = "RESOURCE_EXHAUSTED" in str(error)
    report["text"] = str(error).splitlines()[0][:300]
time.sleep(1)  # so that whoever samples from outside sees the peak
report["hoarded"] = len(hoard) * 64 * 2**20
report["stats"] = {k: v for k, v in (jax.devices()[0].memory_stats() or {}).items() if k in ("bytes_limit", "peak_bytes_in_use")}
for array in hoard:
    array.delete()
hoard.clear()
for _ in range(3):
    w = step(w, x)
report["recovered"] = bool(jnp.isfinite(w).all())
print(json.dumps(report))
