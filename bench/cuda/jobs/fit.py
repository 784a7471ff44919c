"""Finds the largest batch that trains three steps on the card as this process sees it. argv: MODEL GUESS [FRACTION]

A FRACTION sets torch's own limit (torch.cuda.set_per_process_memory_fraction), for comparison.
"""

import gc
import json
import sys

import torch

from models import Training

name, guess = sys.argv[1], int(sys.argv[2])
if len(sys.argv) > 3:
    torch.cuda.set_per_process_memory_fraction(float(sys.argv[3]))
tried: dict[int, bool] = {}


def fits(batch: int) -> bool:
    if batch not in tried:
        training = None
        try:
            training = Training(name, batch)
            for _ in range(3):
                training.step()
            torch.cuda.synchronize()
            tried[batch] = True
        except torch.cuda.OutOfMemoryError:
            tried[batch] = False
        except RuntimeError as error:
            # cuBLAS and cuDNN have texts of their own for the same thing.
            if "ALLOC_FAILED" not in str(error) and "out of memory" not in str(error):
                raise
            tried[batch] = False
        del training
        gc.collect()
        torch.cuda.empty_cache()
    return tried[batch]


low, high = 0, guess
step = max(1, guess // 16)
if fits(guess):
    low = guess
    while fits(low + step):
        low += step
    high = low + step
else:
    while high - step > 0 and not fits(high - step):
        high -= step
    low = high - step
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
print(json.dumps({"model": name, "largest": low, "tried": tried, "peak_reserved": torch.cuda.max_memory_reserved()}))
