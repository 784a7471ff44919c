"""Times pairs of allocation and release, and a small training step: run by cost.mjs with and without the runtime."""

import json
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)


def pair_ns(size: int, count: int = 20000) -> float:
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter_ns()
        for _ in range(count):
            torch.empty(size, dtype=torch.uint8)
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(64, 256)
steps = []
for _ in range(200):
    start = time.perf_counter()
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    steps.append(time.perf_counter() - start)

print(json.dumps({
    "pair_64B_ns": pair_ns(64),
    "pair_64KiB_ns": pair_ns(65536),
    "step_ms": sorted(steps)[len(steps) // 2] * 1000,
    "torch": torch.__version__,
}))
