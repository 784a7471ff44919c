"""Scripts that bring their batch size by themselves are measured as they are."""

import unittest

from support import probe, run

SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
size, accumulation = int(sys.argv[1]), int(sys.argv[2])
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def work(x, y):
    print('batch', len(x), flush=True)
    (nn.functional.mse_loss(model(x), y) / accumulation).backward()
def loop(batches):
    for i, (x, y) in enumerate(batches, start=1):
        work(x, y)
        if i % accumulation == 0: optimizer.step(); optimizer.zero_grad()
    print('epilogue')
"""
LOADER = "loop(DataLoader(TensorDataset(torch.randn(400, 4), torch.randn(400, 2)), batch_size=size))\n"
NO_LOADER = "loop((torch.randn(size, 4), torch.randn(size, 2)) for _ in range(100))\n"


def measure(text, size, accumulation, answers=(), **env):
    arguments = [str(size), str(accumulation)]
    knobs = {"OOMTUNE_MICRO_BATCH": size, "OOMTUNE_ACCUMULATION": accumulation, **env}
    return run(SCRIPT + text, "measure", answers, arguments, **knobs)


class Measuring(unittest.TestCase):
    def test_with_a_loader(self):
        result = measure(LOADER, 8, 2)
        self.assertEqual((result.status, result.output), (0, "batch 8\n" * 6), result.errors)
        measured = result.one("measured")
        self.assertEqual((measured["micro_batch"], measured["accumulation"], measured["own_accumulation"]), (8, 2, 2))
        self.assertEqual(measured["steps"], 3)
        self.assertTrue(result.one("loop")["can"]["batch"])

    def test_steps(self):
        self.assertEqual(measure(LOADER, 8, 1, OOMTUNE_STEPS=5).output, "batch 8\n" * 5)

    def test_other_sizes_follow_in_the_same_process(self):
        result = measure(LOADER, 8, 1, [probe(20, steps=2)])
        self.assertEqual(result.output, "batch 8\n" * 3 + "batch 20\n" * 2)
        self.assertEqual([m["micro_batch"] for m in result.of("measured")], [8, 20])

    def test_a_size_that_only_foretells_the_limit_is_measured_without_cudnns_benchmark_and_what_follows_with_the_scripts(
        self,
    ):
        for own in (True, False):
            text = "torch.backends.cudnn.benchmark = %s\n" % own + LOADER
            text = SCRIPT.replace("'batch', len(x)", "len(x), torch.backends.cudnn.benchmark") + text
            for foretells, first in ((1, False), ("", own)):
                env = {"OOMTUNE_MICRO_BATCH": 8, "OOMTUNE_FORETELLS": foretells}
                result = run(text, "measure", [probe(20, steps=2)], ["8", "1"], **env)
                self.assertEqual(result.output, "8 %s\n" % first * 3 + "20 %s\n" % own * 2, result.errors)

    def test_a_loader_of_another_size_is_left_alone(self):
        result = run(SCRIPT + LOADER, "measure", (), ["8", "1"], OOMTUNE_MICRO_BATCH=4)
        self.assertFalse(result.one("loop")["can"]["batch"])
        self.assertEqual(result.one("measured")["micro_batch"], 4)

    def test_the_model_is_not_run_to_find_samples_where_a_knob_of_the_command_is_tried(self):
        counted = SCRIPT.replace(
            "model = nn.Linear(4, 2)",
            """
class Model(nn.Linear):
    def forward(self, x):
        print("forward", len(x), flush=True)
        return super().forward(x.float())
model = Model(4, 2)""",
        )
        text = "loop((torch.ones(1, 4, dtype=torch.long), torch.randn(1, 2)) for _ in range(100))\n"
        # Where either dimension could be that of the samples, running the model tells which.
        looked = run(counted + text, "measure", (), ["1", "1"], OOMTUNE_MICRO_BATCH=1)
        self.assertGreater(looked.output.count("forward"), 3)
        tried = run(counted + text, "measure", (), ["1", "1"], OOMTUNE_MICRO_BATCH=1, OOMTUNE_KNOB_SEQ_LEN=4)
        self.assertEqual(tried.output, "batch 1\nforward 1\n" * 3)
        self.assertEqual((looked.one("loop")["can"]["batch"], tried.one("loop")["can"]["batch"]), (True, False))

    def test_what_the_flags_do_not_carry_is_on_while_it_is_measured(self):
        blocks = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        print('block', flush=True)
        return self.inner(x)
model = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
        for text in (LOADER, NO_LOADER):
            for knobs, passes in (("checkpointing", 2), ("", 1)):
                env = {"OOMTUNE_HOOK_KNOBS": knobs, "OOMTUNE_CHECKPOINTING": 1}
                result = measure(blocks + text, 8, 1, OOMTUNE_STEPS=2, **env)
                self.assertEqual(result.output.count("block\n"), 2 * 2 * passes, result.errors)

    def test_without_a_loader(self):
        result = measure(NO_LOADER, 8, 2)
        self.assertEqual((result.status, result.output), (0, "batch 8\n" * 6), result.errors)
        self.assertEqual((result.one("loop")["can"]["batch"], result.one("loop")["place"]), (True, "call"))
        self.assertEqual(result.one("measured")["accumulation"], 2)

    def test_a_call_of_another_size_is_left_alone(self):
        result = run(SCRIPT + NO_LOADER, "measure", (), ["8", "1"], OOMTUNE_MICRO_BATCH=4)
        self.assertFalse(result.one("loop")["can"]["batch"])
        self.assertEqual(result.one("measured")["micro_batch"], 4)


if __name__ == "__main__":
    unittest.main()
