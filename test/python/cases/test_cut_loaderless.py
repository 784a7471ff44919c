"""Batches that a script makes without a DataLoader, cut at its model's call."""

import unittest

from support import run

KNOBS = {"OOMTUNE_MICRO_BATCH": 8, "OOMTUNE_ACCUMULATION": 3, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}

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


class Loops(unittest.TestCase):
    def assert_same(self, script, most, **seen):
        """The last of its batches has `most` samples alone, and 8 cut; it ends at the same weights."""
        bare, tuned = run(script, "apply"), run(script, "apply", OOMTUNE_OWN_BATCH=24, **seen, **KNOBS)
        self.assertEqual((bare.status, tuned.status), (0, 0), bare.errors + tuned.errors)
        one, other = bare.output.split(), tuned.output.split()
        self.assertEqual((one[0], other[0]), (most, "8"))
        for a, b in zip(one[1:], other[1:]):
            self.assertAlmostEqual(float(a), float(b), delta=1e-9)


class TimeFirst(Loops):
    def test_a_last_batch_of_fewer_samples_is_cut_too(self):
        self.assert_same(LOOP, "15")


#: The loop follows; `optimizer` is the script's to make.
MODEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
class Model(nn.Linear):
    def forward(self, x):
        seen.append(len(x)); return super().forward(x)
model, seen, optimizer = Model(4, 3), [], None
data, labels = torch.randn(48, 4), torch.randint(3, (48,))
loader = DataLoader(TensorDataset(data, labels), batch_size=24)
%s
print(max(seen), *[repr(p.sum().item()) for p in model.parameters()])
"""
LATE = """
for x, y in %s:
    nn.functional.cross_entropy(model(x), y).backward()
    if optimizer is None: optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step(); optimizer.zero_grad()
"""
#: As transformers' Trainer after an evaluation: the model is set to training in the step, when its batch is there.
LATE_MODE = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.eval()
for x, y in loader:
    model.train()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step(); optimizer.zero_grad()
"""


class LateMode(Loops):
    def test_the_first_batch_is_cut_before_the_model_is_set_to_training(self):
        self.assert_same(MODEL % LATE_MODE, "24", OOMTUNE_OWN_SAMPLES=48)


class LateOptimizer(Loops):
    def test_the_first_batch_is_cut_before_the_optimizer_is_made(self):
        for batches, samples in (("loader", 48), ("zip(data.split(24), labels.split(24))", None)):
            with self.subTest(batches):
                seen = {} if samples is None else {"OOMTUNE_OWN_SAMPLES": samples}
                self.assert_same(MODEL % (LATE % batches), "24", **seen)


if __name__ == "__main__":
    unittest.main()
