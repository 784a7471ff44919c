"""Accumulated micro-batches end at the same weights as the user's own batch."""

import os
import sys
import tempfile
import unittest

import torch
from support import FIXTURES, ROOT, environment, run, start

TOLERANCE = 1e-5


#: A loader after another, each with batches of its own.
GROWING = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(90, 4), torch.randn(90, 2))
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
for size in (4, 16, 32):
    for x, y in DataLoader(data, batch_size=size, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        steps += 1
torch.save({'steps': steps, **model.state_dict()}, sys.argv[1])
"""


def weights(folder, name, **env):
    target = os.path.join(folder, name)
    result = run("equivalence.py", "apply", arguments=[target], **env)
    if result.status != 0:
        raise AssertionError(result.errors)
    return torch.load(target), result


class Equivalence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        target = os.path.join(cls.folder.name, "bare")
        script = os.path.join(FIXTURES, "equivalence.py")
        start(script, [target], env=environment()).check_returncode()
        cls.bare = torch.load(target)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_same(self, case, tuned):
        for name, value in self.bare[case].items():
            difference = (value - tuned[case][name]).norm() / value.norm()
            self.assertLess(difference.item(), TOLERANCE, "%s of %s" % (name, case))

    def test_watched_job_is_bit_identical(self):
        tuned, result = weights(self.folder.name, "watched", OOMTUNE_WATCH=1)
        for case, values in self.bare.items():
            for name, value in values.items():
                self.assertTrue(torch.equal(value, tuned[case][name]), "%s of %s" % (name, case))
        steps = result.of("step")
        self.assertEqual([step["n"] for step in steps[:10]], list(range(1, 11)))
        self.assertEqual(steps[0]["samples"], 16)
        self.assertEqual([one["steps"] for one in result.of("measured")][:2], [2, 5])
        measured = result.of("measured")[-1]
        self.assertEqual((measured["micro_batch"], measured["own_accumulation"]), (16, 1))
        self.assertGreater(measured["parameter_bytes"], 0)
        self.assertEqual(result.of("loop")[-1]["own_batch"], 16)

    def test_micro_batches_of_4_for_16(self):
        tuned, _ = weights(
            self.folder.name,
            "four",
            OOMTUNE_CUT="loader",
            OOMTUNE_MICRO_BATCH=4,
            OOMTUNE_ACCUMULATION=4,
            OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
        )
        for case in self.bare:
            with self.subTest(case):
                self.assert_same(case, tuned)

    def test_micro_batches_of_8_for_16(self):
        tuned, _ = weights(
            self.folder.name,
            "eight",
            OOMTUNE_CUT="loader",
            OOMTUNE_MICRO_BATCH=8,
            OOMTUNE_ACCUMULATION=2,
            OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
        )
        for case in self.bare:
            with self.subTest(case):
                self.assert_same(case, tuned)

    def test_cut_at_the_model(self):
        for micro in (4, 8):
            tuned, result = weights(
                self.folder.name,
                "model",
                OOMTUNE_MICRO_BATCH=micro,
                OOMTUNE_ACCUMULATION=16 // micro,
                OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
            )
            self.assertEqual(result.one("cut")["cut"], "model")
            for case in self.bare:
                with self.subTest(case, micro=micro):
                    self.assert_same(case, tuned)


class Loaders(unittest.TestCase):
    def saved(self, mode, **env):
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "weights")
            result = run(GROWING, mode, arguments=[target], **env)
            self.assertEqual(result.status, 0, result.errors)
            self.told = [message for message in result.messages if message["t"] == "warn"]
            return torch.load(target)

    def test_each_keeps_its_own_batches_where_nobody_asks_for_others(self):
        bare = self.saved("apply")
        knobs = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 2, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        for cut in ("model", "loader"):
            tuned = self.saved("apply", OOMTUNE_CUT=cut, OOMTUNE_OWN_BATCH=4, **knobs)
            self.assertIn("own_batches", [message["code"] for message in self.told])
            # Cut at the loader, the loop goes round for each micro-batch.
            self.assertEqual(tuned.pop("steps"), bare["steps"] if cut == "model" else 135)
            for name, value in tuned.items():
                self.assertLess((value - bare[name]).norm().item(), TOLERANCE, name)
        # Nor where a search has seen no one size.
        for cut in ("model", "loader"):
            unknown = dict(knobs, OOMTUNE_ACCUMULATION=1, OOMTUNE_OWN_BATCH="unknown")
            tuned = self.saved("apply", OOMTUNE_CUT=cut, **unknown)
            self.assertNotIn("own_batches", [message["code"] for message in self.told])
            self.assertEqual(tuned.pop("steps"), bare["steps"] if cut == "model" else 135)
            for name, value in tuned.items():
                self.assertLess((value - bare[name]).norm().item(), TOLERANCE, name)
        # Another effective batch was asked for.
        self.assertGreater(self.saved("apply", OOMTUNE_OWN_BATCH=8, **knobs)["steps"], bare["steps"])

    def test_how_many_batches_a_loader_has_is_not_made_up(self):
        sys.path.insert(0, os.path.join(ROOT, "python"))
        from oomtune.hook.apply.micro_batches import Regrouped

        listed = Regrouped([[0, 1, 2], [3]], 2, False, 2)
        self.assertEqual(list(listed), [[0, 1], [2, 3]])
        with self.assertRaisesRegex(TypeError, "how many batches of 2 the loader has is not known"):
            len(listed)


if __name__ == "__main__":
    unittest.main()
