"""Computes a little with CuPy, takes memory until it is refused, lets go, and goes on. argv: pool | async"""

import json
import sys
import time

import cupy

mode = sys.argv[1]
if mode == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
report = {"mode": mode, "cupy": cupy.__version__}


def work():
    a = cupy.random.rand(1024, 1024, dtype=cupy.float32)
    return float(cupy.linalg.norm(a @ a).get())


work()
hoard = []
try:
    for _ in range(4096):
        hoard.append(cupy.empty(64 * 2**20, dtype=cupy.uint8))
except Exception as error:
    report["error"] = f"{type(error).__module__}.{type(error).__qualname__}"
    report["is_own_oom"] = isinstance(error, cupy.cuda.memory.OutOfMemoryError)
    report["text"] = str(error).splitlines()[0][:300]
time.sleep(1)  # so that whoever samples from outside sees the peak
report["hoarded"] = len(hoard) * 64 * 2**20
hoard.clear()
if mode == "pool":
    cupy.get_default_memory_pool().free_all_blocks()
report["recovered"] = work() > 0
print(json.dumps(report))
