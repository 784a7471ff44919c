"""Holds memory so that exactly argv[1] bytes of device 0 stay free; says "holding" and waits for its end."""

import sys
import time

import pynvml
import torch

wanted = int(sys.argv[1])
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
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
