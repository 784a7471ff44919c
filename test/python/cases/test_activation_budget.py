"""A compiled model that may keep a part of its activations only: it trains to the same, and the process is as before afterwards."""

import os
import shutil
import sys
import tempfile
import types
import unittest

import torch
from support import ROOT, probe, run

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.apply.activation_budget import ActivationBudget

#: Trains a compiled model, and tells what its backward pass has kept beside the weights.
SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
layers = [layer for _ in range(3) for layer in (nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32))]
plain = nn.Sequential(*layers)
model = torch.compile(plain)
optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
losses = []
def kept(loss):
    own = {each.data_ptr() for each in plain.parameters()}
    found, seen, nodes = {}, set(), [loss.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen: continue
        seen.add(node)
        for tensor in getattr(node, "saved_tensors", None) or ():
            if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in own:
                found[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        nodes.extend(each for each, _ in node.next_functions)
    return sum(found.values())
for x, y in DataLoader(TensorDataset(torch.randn(64, 32), torch.randn(64, 32)), batch_size=16):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    bytes_kept = kept(loss)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
import torch._functorch.config
print(bytes_kept, torch._functorch.config.activation_memory_budget)
torch.save({"losses": torch.tensor(losses), "weights": plain.state_dict()}, "out.pt")
"""


class Compiled:
    def compiled(self):
        return True


class Budget(unittest.TestCase):
    def test_only_where_a_compiler_takes_one_and_the_script_has_none(self):
        knob = ActivationBudget(torch, Compiled())
        try:
            import torch._functorch.config as config
        except ImportError:
            config = None
        known = hasattr(config, "activation_memory_budget")
        self.assertEqual(knob.possible(), known)
        plain = types.SimpleNamespace(compiled=lambda: False)
        self.assertFalse(ActivationBudget(torch, plain).possible())
        if known:
            config.activation_memory_budget = 0.4
            try:
                self.assertFalse(knob.possible())
                knob.switch("0.7")
                self.assertEqual(config.activation_memory_budget, 0.7)
                knob.switch("")
                self.assertEqual(config.activation_memory_budget, 0.4)
            finally:
                config.activation_memory_budget = 1.0

    def test_less_is_kept_and_the_same_is_trained(self):
        if not ActivationBudget(torch, Compiled()).possible() or not shutil.which("g++"):
            self.skipTest("no compiler that takes a budget: torch 2.4 and a C++ compiler")
        saved, kept = [], []
        for budget in ("", "0.3"):
            on = {"OOMTUNE_HOOK_KNOBS": "activation_memory_budget", "OOMTUNE_ACTIVATION_MEMORY_BUDGET": budget}
            with tempfile.TemporaryDirectory() as folder:
                result = run(SCRIPT, "apply", cwd=folder, TORCHINDUCTOR_CACHE_DIR=folder, **on)
                self.assertEqual(result.status, 0, result.errors)
                saved.append(torch.load(os.path.join(folder, "out.pt")))
                kept.append(result.output.split())
        self.assertEqual([budget for _, budget in kept], ["1.0", "0.3"])
        self.assertLess(int(kept[1][0]), 0.8 * int(kept[0][0]))
        torch.testing.assert_close(saved[1], saved[0], rtol=1e-5, atol=1e-6)

    def test_a_probe_leaves_the_budget_as_it_was(self):
        if not ActivationBudget(torch, Compiled()).possible() or not shutil.which("g++"):
            self.skipTest("no compiler that takes a budget: torch 2.4 and a C++ compiler")
        with tempfile.TemporaryDirectory() as folder:
            answers = [probe(16, steps=2, activation_memory_budget="0.3"), {"t": "go"}]
            result = run(SCRIPT, "probe", answers, cwd=folder, TORCHINDUCTOR_CACHE_DIR=folder)
        self.assertEqual(result.status, 0, result.errors)
        can = result.one("loop")["can"]
        self.assertEqual((can["activation_memory_budget"], can["switch_rung"]), (True, False))
        self.assertEqual(len(result.of("measured")), 1)
        self.assertEqual(result.output.split()[1], "1.0")


if __name__ == "__main__":
    unittest.main()
