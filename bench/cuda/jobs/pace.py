"""Times training steps. argv: STEPS NAME:BATCH… prints the median step of each in milliseconds."""

import json
import statistics
import sys
import time

import torch

from models import Training

steps = int(sys.argv[1])
report = {}
for word in sys.argv[2:]:
    name, batch = word.split(":")
    training = Training(name, int(batch))
    for _ in range(20):
        training.step()
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        training.step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    report[name] = {"median_ms": statistics.median(times), "mean_ms": statistics.fmean(times), "steps": steps}
    del training
    torch.cuda.empty_cache()
print(json.dumps(report))
