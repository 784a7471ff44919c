"""Trains for argv[1] seconds and prints when each step ended and how long it took, as one JSON document."""

import json
import sys
import time

import torch

from models import Training

training = Training("resnet50", int(sys.argv[2]))
for _ in range(10):
    training.step()
torch.cuda.synchronize()
print("steady", flush=True)
steps = []
end = time.time() + float(sys.argv[1])
while time.time() < end:
    begin = time.perf_counter()
    training.step()
    torch.cuda.synchronize()
    steps.append((time.time(), 1000 * (time.perf_counter() - begin)))
print(json.dumps({"steps": steps, "peak_reserved": torch.cuda.max_memory_reserved()}))
