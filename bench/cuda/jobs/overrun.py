"""Takes more and more memory, with little computing, until it is refused and dies of it."""

import time

import torch

hoard = []
torch.zeros(1, device="cuda")
print(f"begin {time.time()}", flush=True)
while True:
    hoard.append(torch.empty(128 * 2**20, dtype=torch.uint8, device="cuda"))
    time.sleep(0.1)
