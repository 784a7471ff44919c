"""What is measured of a job that runs as it stands: by figures that nobody resets, and without waiting where that would do harm."""

import importlib
import os
import sys
import types
import unittest

from support import ROOT, run

sys.path.insert(0, os.path.join(ROOT, "python"))
first_steps = importlib.import_module("oomtune.hook.probe.first_steps")
FORWARD_BACKWARD, OPTIMIZER = first_steps.FORWARD_BACKWARD, first_steps.OPTIMIZER


class PhaseOfThePeak(unittest.TestCase):
    def figures(self, *notes):
        peaks = first_steps.Peaks()
        for phase, allocated in notes:
            peaks.note(phase, allocated + 100, allocated, allocated + 50)
        return peaks.figures()

    def test_it_is_the_one_in_which_it_rose_last(self):
        steps = [(OPTIMIZER, 10), (FORWARD_BACKWARD, 30), (OPTIMIZER, 40), (FORWARD_BACKWARD, 40), (OPTIMIZER, 40)]
        found = self.figures(*steps)
        self.assertEqual((found["forward_backward_bytes"], found["optimizer_bytes"]), (30, 40))
        self.assertEqual((found["total_bytes"], found["reserved_bytes"]), (140, 90))

    def test_it_is_not_known_where_it_is_of_the_time_before(self):
        found = self.figures((OPTIMIZER, 40), (FORWARD_BACKWARD, 40), (OPTIMIZER, 40))
        self.assertEqual((found["forward_backward_bytes"], found["optimizer_bytes"]), (None, None))


class StandInForCuda:
    """A GPU that is not here, on which a graph is captured or not."""

    def __init__(self, capturing):
        self.capturing = capturing
        self.waited = 0

    def is_available(self):
        return True

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def synchronize(self):
        self.waited += 1


class Waiting(unittest.TestCase):
    def test_not_within_the_capture_of_a_graph(self):
        for capturing in (False, True):
            cuda = StandInForCuda(capturing)
            torch = types.SimpleNamespace(cuda=cuda)
            watch = first_steps.FirstSteps(types.SimpleNamespace(hook=None, torch=torch))
            watch._synchronize(cuda)
            self.assertEqual(cuda.waited, 0 if capturing else 1)


LOOP = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
%s
for step in range(3):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


class OwnBatch(unittest.TestCase):
    def batch(self, head):
        result = run(LOOP % head, "apply", OOMTUNE_WATCH=1)
        self.assertEqual(result.status, 0, result.errors)
        return result.of("loop")[-1]["own_batch"]

    def test_of_a_loop_without_a_loader(self):
        self.assertEqual(self.batch("x = torch.randn(20, 4)"), 20)

    def test_of_a_loop_that_only_looks_at_a_batch_it_is_not(self):
        loader = "torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=%d)"
        peek = "valid = " + loader % 10 + "\nfor x in valid: break\n"
        result = run(
            LOOP.replace("for step in range(3):", "for x in %s:" % (loader % 8)) % peek, "apply", OOMTUNE_WATCH=1
        )
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual((result.of("loop")[-1]["own_batch"], result.of("measured")[-1]["micro_batch"]), (8, 8))

    def test_a_call_of_one_row_counts_if_a_backward_pass_follows(self):
        self.assertEqual(self.batch("x = torch.randn(20, 4); model(x[:1])"), 20)
        self.assertEqual(self.batch("x = torch.randn(1, 4)"), 1)

    def test_it_is_in_the_second_dimension_where_a_name_says_so(self):
        self.assertEqual(self.batch("batch_size = 6\nx = torch.randn(20, batch_size, 4)"), 6)


EPOCHS = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader
data, valid = torch.randn(32, 4), DataLoader(torch.randn(64, 4), batch_size=4)
loaders = [DataLoader(data, batch_size=4) for _ in range(2)]
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulation, steps = %d, 0
while steps < 40:
    batches = %s
    for at, x in enumerate(batches):
        model(x).sum().backward()
        time.sleep(0.02 / accumulation)
        if (at + 1) %% accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == 1:
                begun = time.perf_counter()
            if steps == 40:
                print((time.perf_counter() - begun) / 39)
    %s
"""
FRESH = "DataLoader(data, batch_size=4)"


class EpochsWithLoadersOfTheirOwn(unittest.TestCase):
    def check(self, accumulation, loader=FRESH, after=""):
        result = run(EPOCHS % (accumulation, loader, after), "apply", OOMTUNE_WATCH=1)
        self.assertEqual(result.status, 0, result.errors)
        for measured in result.of("measured"):
            self.assertEqual((measured["micro_batch"], measured["own_accumulation"]), (4, accumulation))
        self.assertEqual(measured["steps"], 40)
        self.assertLess(abs(measured["step_s"][0] / float(result.output) - 1), 0.5)

    def test_a_step_takes_as_long_as_it_does(self):
        self.check(1)

    def test_accumulation_is_that_of_the_script(self):
        self.check(4)

    def test_two_loaders_in_turn(self):
        self.check(4, "loaders[steps // 2 % 2]")

    def test_batches_of_a_validation_do_not_count(self):
        self.check(1, after="for x in valid: model(x)")


if __name__ == "__main__":
    unittest.main()
