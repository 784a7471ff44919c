"""Checkpointing of some of a model's blocks, and what a probe tells of each of them."""

import importlib.util
import tempfile
import unittest

import torch
from support import probe, run

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Dropout(0.2), nn.Linear(width, 6))
        self.passes = 0
    def forward(self, x):
        self.passes += 1
        return x + self.body(x)
model = nn.Sequential(nn.Linear(4, 6), Block(6), Block(60), Block(6), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 2)), batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print(*[block.passes for block in model[1:4]])
torch.save(model.state_dict(), 'out.pt')
"""

GPT2 = """
import copy, torch, transformers
from torch.utils.data import DataLoader
torch.manual_seed(0)
config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=24, n_layer=4, n_head=2)
model = transformers.GPT2LMHeadModel(config).train()
passes = [0] * 4
for number, block in enumerate(model.transformer.h):
    block.mlp.register_forward_pre_hook(lambda *_, number=number: passes.__setitem__(number, passes[number] + 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for ids in DataLoader(torch.randint(64, (16, 16)), batch_size=4):
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
print(*passes)
copy.deepcopy(model)
torch.save(model.state_dict(), 'out.pt')
"""


class SomeBlocks(unittest.TestCase):
    def train(self, script, blocks=None):
        """(the forward passes of each block, the weights)."""
        on = {"OOMTUNE_CHECKPOINTING": 1, "OOMTUNE_HOOK_KNOBS": "checkpointing"}
        if blocks:
            on.update(OOMTUNE_CHECKPOINTED_BLOCKS=blocks, OOMTUNE_HOOK_KNOBS="checkpointing,checkpointed_blocks")
        with tempfile.TemporaryDirectory() as folder:
            result = run(script, "apply", cwd=folder, **({} if blocks is None else on))
            self.assertEqual(result.status, 0, result.errors)
            return result.output.split(), torch.load(folder + "/out.pt")

    def assert_recomputed(self, script, blocks, passes):
        _, bare = self.train(script)
        seen, weights = self.train(script, blocks)
        self.assertEqual(seen, passes.split())
        for name, value in bare.items():
            self.assertTrue(torch.equal(value, weights[name]), name)

    def test_only_those_are_recomputed_and_every_weight_is_the_same(self):
        self.assert_recomputed(SCRIPT, "0,2/3", "8 4 8")
        self.assert_recomputed(SCRIPT, "1/3", "4 8 4")

    def test_all_are_where_the_model_has_other_blocks_than_were_named(self):
        self.assert_recomputed(SCRIPT, "0/7", "8 8 8")

    def test_a_probe_puts_them_on_and_takes_them_off(self):
        rungs = [{}, {"checkpointing": True}, {"checkpointing": True, "checkpointed_blocks": "1/3"}, {}]
        script = SCRIPT.replace("    optimizer.step()", "    optimizer.step(); print(*[b.passes for b in model[1:4]])")
        result = run(script, "probe", [probe(8, steps=2, **rung) for rung in rungs])
        self.assertEqual(result.one("loop")["can"]["checkpointed_blocks"], 3)
        totals = [tuple(map(int, line.split())) for line in result.output.splitlines()]
        passes = [tuple(b - a for a, b in zip(one, other)) for one, other in zip([(0, 0, 0), *totals], totals)]
        self.assertEqual(passes[::2], [(1, 1, 1), (2, 2, 2), (1, 2, 1), (1, 1, 1)], result.errors)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed for this torch")
    def test_blocks_of_transformers_are_chosen_one_by_one(self):
        self.assert_recomputed(GPT2, "0,2/4", "8 4 8 4")


if __name__ == "__main__":
    unittest.main()
