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


LATE = """
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
for x, y in %s:
    nn.functional.cross_entropy(model(x), y).backward()
    if optimizer is None: optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step(); optimizer.zero_grad()
print(max(seen), *[repr(p.sum().item()) for p in model.parameters()])
"""


#: As transformers' Trainer after an evaluation: the model is set to training in the step, when its batch is there.
LATE_MODE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
class Model(nn.Linear):
    def forward(self, x):
        seen.append(len(x)); return super().forward(x)
model, seen = Model(4, 3), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(48, 4), torch.randint(3, (48,))
model.eval()
for x, y in DataLoader(TensorDataset(data, labels), batch_size=24):
    model.train()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step(); optimizer.zero_grad()
print(max(seen), *[repr(p.sum().item()) for p in model.parameters()])
"""


class LateMode(unittest.TestCase):
    def test_the_first_batch_is_cut_before_the_model_is_set_to_training(self):
        knobs = {"OOMTUNE_MICRO_BATCH": 8, "OOMTUNE_ACCUMULATION": 3, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        bare = run(LATE_MODE, "apply")
        tuned = run(LATE_MODE, "apply", OOMTUNE_OWN_BATCH=24, OOMTUNE_OWN_SAMPLES=48, **knobs)
        self.assertEqual((bare.status, tuned.status), (0, 0), bare.errors + tuned.errors)
        one, other = bare.output.split(), tuned.output.split()
        self.assertEqual((one[0], other[0]), ("24", "8"))
        for a, b in zip(one[1:], other[1:]):
            self.assertAlmostEqual(float(a), float(b), delta=1e-9)


class LateOptimizer(unittest.TestCase):
    def test_the_first_batch_is_cut_before_the_optimizer_is_made(self):
        knobs = {"OOMTUNE_MICRO_BATCH": 8, "OOMTUNE_ACCUMULATION": 3, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        for batches, samples in (("loader", 48), ("zip(data.split(24), labels.split(24))", None)):
            with self.subTest(batches):
                seen = {} if samples is None else {"OOMTUNE_OWN_SAMPLES": samples}
                bare = run(LATE % batches, "apply")
                tuned = run(LATE % batches, "apply", OOMTUNE_OWN_BATCH=24, **seen, **knobs)
                self.assertEqual((bare.status, tuned.status), (0, 0), tuned.errors)
                one, other = bare.output.split(), tuned.output.split()
                self.assertEqual((one[0], other[0]), ("24", "8"))
                for a, b in zip(one[1:], other[1:]):
                    self.assertAlmostEqual(float(a), float(b), delta=1e-9)


if __name__ == "__main__":
    unittest.main()
