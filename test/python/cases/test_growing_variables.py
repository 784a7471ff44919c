"""Growth from step to step is judged over all steps, and what keeps the memory is found among the script's variables."""

import os
import sys
import tempfile
import types
import unittest

from support import PATH

sys.path[:0] = PATH.split(":")

import torch
from oomtune.hook.probe.step_phases import rise
from oomtune.hook.watch.growing_variables import GrowingVariables


class RiseTest(unittest.TestCase):
    def test_bears_single_steps_that_fall(self):
        noisy = [100 + 10 * step + (-25 if step % 4 == 2 else 5) for step in range(12)]
        self.assertGreater(rise(noisy), 7)
        self.assertLess(rise(noisy), 13)

    def test_is_none_of_what_stays_or_comes_and_goes_or_is_full(self):
        for values in (
            [100] * 9,
            [100, 150] * 5,
            [100, 400, 100, 400, 100, 400, 401, 100, 100],
            [100, 200, 300, 400, 500, 500, 500, 500, 500],
            [100, 300, 300],
            [100, 300, 300, 300],
            [500, 400, 300, 200, 100, 100],
            # a caching allocator's, seen on a GPU: a batch more from the sixth step on, and blocks of other sizes in each
            [702937600, 703169024, 702140928, 703169024, 1023071744, 1024099840, 1023473152, 1023942144, 1023997440],
            [
                1460950016,
                1463497728,
                1460950016,
                1463702528,
                1459718144,
                1460840448,
                1462675456,
                1461819392,
                1459066880,
            ],
            [
                2068820480,
                2070131200,
                2072228352,
                2070917632,
                2069087232,
                2069349376,
                2068825088,
                2070004736,
                2069742592,
            ],
            [955584000, 955674112, 956804608, 955579904, 955477504],
        ):
            self.assertEqual(rise(values), 0, values)

    def test_of_few_steps_is_a_hint(self):
        self.assertEqual(rise([100, 140]), 40)
        self.assertIsNone(rise([100]))
        self.assertIsNone(rise([100, None, 200]))


class GrowingVariablesTest(unittest.TestCase):
    def named(self, text, steps=4, held=0):
        """What is found while a script's loop runs: `look` and `name` stand where the hook would be asked."""
        keepers = GrowingVariables(torch)
        said = []
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as script:
            script.write(text)
        try:
            space = types.ModuleType("script").__dict__
            space.update(
                torch=torch,
                STEPS=steps,
                look=keepers.snapshot,
                name=lambda: said.append(keepers.grown_within(steps, held)),
            )
            exec(compile(text, script.name, "exec"), space)
        finally:
            os.unlink(script.name)
        return said[0] and said[0].replace(os.path.basename(script.name), "script.py")

    def setUp(self):
        import linecache

        linecache.clearcache()

    def test_sees_nothing_in_a_loop_that_keeps_nothing(self):
        self.assertIsNone(
            self.named("look()\nlast = [torch.ones(3)]\nfor i in range(STEPS):\n    last[0] = torch.ones(3)\nname()\n")
        )

    def test_prefers_what_holds_graphs_to_longer_lists(self):
        text = (
            "w = torch.ones(3, requires_grad=True)\nnumbers, kept = [], []\nlook()\nfor i in range(STEPS):\n"
            "    numbers.extend([0.0] * 1000)\n    kept.append((w * 2).sum())\nname()\n"
        )
        self.assertEqual(self.named(text), "`kept` (script.py:6: kept.append((w * 2).sum()))")

    def test_blames_no_log_for_what_it_cannot_hold(self):
        text = (
            "class Result:\n    def __init__(self):\n        self.value = torch.ones(1 << 18)\nlog, results = [], []\nlook()\n"
            "for i in range(STEPS):\n    log.append({'loss': 0.5, 'step': i})\n    %sname() if i == STEPS - 1 else None\n"
        )
        mebibytes = 4 << 20
        self.assertIsNone(self.named(text % "", held=0.01 * mebibytes))
        kept = self.named(text % "results.append(Result()); ", held=0.01 * mebibytes)
        self.assertEqual(kept and kept.split(" ")[0], "`results`")

    def test_finds_a_hidden_state_that_holds_its_past(self):
        text = (
            "w = torch.ones(3, requires_grad=True)\ndef main():\n    hidden = torch.zeros(3) + w\n    look()\n"
            "    for i in range(STEPS):\n        hidden = hidden + w\n    name()\nmain()\n"
        )
        self.assertEqual(self.named(text), "`hidden` (script.py:6: hidden = hidden + w)")

    def test_keeps_no_variable_of_a_running_function_alive(self):
        text = (
            "import weakref\ndef main():\n    big = torch.ones(3)\n    seen = weakref.ref(big)\n    look()\n    del big\n"
            "    kept = []\n    kept.extend([0] * STEPS)\n    name()\n    assert seen() is None\nmain()\n"
        )
        self.named(text)


if __name__ == "__main__":
    unittest.main()
