"""Holds memory so that argv[1] bytes of device 0 stay free, to 2 MiB; says "holding" and waits for its end."""

import os
import sys
import time

# Each allocation goes to the driver as it is: torch would round small ones up to 20 MiB.
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch  # noqa: E402

wanted = int(sys.argv[1])
torch.zeros(1, device="cuda")


def free() -> int:
    return torch.cuda.mem_get_info()[0]


# What ended just now may not have given back everything: go on until nothing has changed for two seconds.
held = []
still = time.monotonic()
while time.monotonic() - still < 2:
    for chunk in (2**30, 2**26, 2**21):
        while free() - wanted >= chunk:
            held.append(torch.empty(chunk, dtype=torch.uint8, device="cuda"))
            still = time.monotonic()
    time.sleep(0.05)
print(f"holding; free {free()}", flush=True)
time.sleep(600)
