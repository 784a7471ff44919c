"""What training keeps in memory: weights, gradients and optimizer state, each storage counted once."""

import unittest

from support import probe, run

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 32), torch.randn(64, 8))
"""
LOOP = """
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
#: Linear(32, 64) and Linear(64, 8) in fp32.
WEIGHTS = 4 * (32 * 64 + 64 + 64 * 8 + 8)
MODEL = "model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))\n"
FIELDS = ("parameter_bytes", "gradient_bytes", "optimizer_state_bytes")


class Holdings(unittest.TestCase):
    def holds(self, text, answers=(probe(4), probe(16, steps=2), {"t": "end"}), mode="probe", **env):
        result = run(HEAD + text, mode, answers, **env)
        self.assertEqual(result.status, 0, result.errors)
        return [tuple(message[field] for field in FIELDS) for message in result.of("measured")]

    def test_optimizers(self):
        for optimizer, copies in (("SGD(ps, lr=0.1)", 0), ("SGD(ps, lr=0.1, momentum=0.9)", 1), ("AdamW(ps)", 2)):
            with self.subTest(optimizer):
                found = self.holds(MODEL + "ps = model.parameters()\noptimizer = torch.optim." + optimizer + LOOP)
                self.assertEqual(len(found), 2)
                for parameters, gradients, state in found:
                    self.assertEqual((parameters, gradients), (WEIGHTS, WEIGHTS))
                    # Step counters of four parameters are tensors too, of four bytes at most each.
                    self.assertIn(state - copies * WEIGHTS, range(17) if copies == 2 else (0,))

    def test_frozen_weights_count_and_have_no_gradients(self):
        text = MODEL + "model[0].requires_grad_(False)\noptimizer = torch.optim.AdamW(model[2].parameters())" + LOOP
        for parameters, gradients, _ in self.holds(text):
            self.assertEqual((parameters, gradients), (WEIGHTS, 4 * (64 * 8 + 8)))

    def test_shared_weights_count_once(self):
        text = (
            "shared = nn.Linear(32, 32)\ntwin = nn.Linear(32, 32)\ntwin.weight = shared.weight\n"
            "model = nn.Sequential(shared, twin, nn.Linear(32, 8))\n"
            "flat = torch.zeros(2, 8, 32)\nmodel[2].weight.data = flat[0]\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)" + LOOP
        )
        for parameters, gradients, _ in self.holds(text):
            # A weight that is a part of a larger storage keeps the whole of that alive.
            self.assertEqual(parameters, 4 * (32 * 32 + 32 + 32 + 2 * 32 * 8 + 8))
            self.assertEqual(gradients, 4 * (32 * 32 + 32 + 32 + 32 * 8 + 8))

    def test_sparse_gradients(self):
        text = (
            "class Bag(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.table = nn.Embedding(1000, 8, sparse=True)\n"
            "    def forward(self, x):\n"
            "        return self.table((x[:, 0] * 100).long().abs() % 1000)\n"
            "model = Bag()\noptimizer = torch.optim.SparseAdam(list(model.parameters()))" + LOOP
        )
        (parameters, gradients, state), _ = self.holds(text)
        self.assertEqual(parameters, 4 * 8000)
        self.assertTrue(0 < gradients <= 4 * (4 * 8 + 2 * 4), gradients)
        self.assertGreaterEqual(state, 2 * 4 * 8000)

    def test_several_optimizers_and_accumulation(self):
        text = (
            MODEL + "one = torch.optim.SGD(model[0].parameters(), lr=0.1)\n"
            "two = torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)\n"
            + LOOP.replace("optimizer.zero_grad()", "one.zero_grad(); two.zero_grad()").replace(
                "optimizer.step()", "one.step(); two.step()"
            )
        )
        answers = [probe(4), probe(4, accumulation=2), {"t": "end"}]
        for parameters, gradients, state in self.holds(text, answers):
            self.assertEqual((parameters, gradients, state), (WEIGHTS, WEIGHTS, 4 * (64 * 8 + 8)))

    def test_what_cannot_be_counted_is_left_out(self):
        text = (
            MODEL + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n"
            "class Odd(torch.Tensor):\n"
            "    def untyped_storage(self): raise RuntimeError('no storage')\n"
            "    storage = untyped_storage\n"
            "class Watched(torch.optim.SGD):\n"
            "    def step(self, *a):\n"
            "        super().step(*a)\n"
            "        self.state['odd'] = {'odd': torch.zeros(4).as_subclass(Odd)}\n"
            "optimizer = Watched(model.parameters(), lr=0.1)" + LOOP
        )
        for parameters, gradients, state in self.holds(text):
            self.assertEqual((parameters, gradients, state), (WEIGHTS, WEIGHTS, None))

    def test_a_script_that_brings_its_own_size(self):
        text = MODEL + "optimizer = torch.optim.AdamW(model.parameters())" + LOOP
        found = self.holds(text, (), "measure", OOMTUNE_MICRO_BATCH=8)
        self.assertEqual([bytes[:2] for bytes in found], [(WEIGHTS, WEIGHTS)])


if __name__ == "__main__":
    unittest.main()
