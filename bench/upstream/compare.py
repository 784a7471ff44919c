"""python compare.py ONE OTHER: how far the weights in two files are apart, as the largest relative difference of a tensor.
`diverged`: there are infinite or undefined weights, so that nothing is to be compared."""

import json
import sys

import torch

one, other = (torch.load(path) for path in sys.argv[1:])
finite = [all(bool(t.double().isfinite().all()) for t in side) for side in (one, other)]
if [a.shape for a in one] != [b.shape for b in other]:
    print(json.dumps({"apart": None}))
elif not all(finite):
    print(json.dumps({"apart": None, "diverged": True}))
else:
    apart = [((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-6)).item() for a, b in zip(one, other)]
    print(json.dumps({"apart": max(apart, default=0.0), "same": all(torch.equal(a, b) for a, b in zip(one, other))}))
