"""Batches that a script makes without a DataLoader, cut at its model's call."""

import unittest

from support import run

LOOP = """
import torch
from torch import nn
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.GRU(4, 3)
    def forward(self, x, state):
        seen.append(x.shape[1])
        return self.inner(x, state)[0].view(-1, 3)
model, seen = Recurrent(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for samples in (24, 24, 15):
    del seen[:]
    x, y = torch.randn(20, samples, 4), torch.randint(3, (20 * samples,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x, torch.zeros(1, samples, 3)), y).backward()
    optimizer.step()
print(max(seen), *[repr(p.sum().item()) for p in model.parameters()])
"""


class TimeFirst(unittest.TestCase):
    def test_a_last_batch_of_fewer_samples_is_cut_too(self):
        knobs = {"OOMTUNE_MICRO_BATCH": 8, "OOMTUNE_ACCUMULATION": 3, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        bare, tuned = run(LOOP, "apply"), run(LOOP, "apply", OOMTUNE_OWN_BATCH=24, **knobs)
        self.assertEqual((bare.status, tuned.status), (0, 0), tuned.errors)
        one, other = bare.output.split(), tuned.output.split()
        self.assertEqual((one[0], other[0]), ("15", "8"))
        for a, b in zip(one[1:], other[1:]):
            self.assertAlmostEqual(float(a), float(b), delta=1e-9)


if __name__ == "__main__":
    unittest.main()
