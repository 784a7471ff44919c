"""What the peaks of single steps tell of those that are still to come."""

import sys
import unittest

from support import PATH

sys.path[:0] = PATH.split(":")

from oomtune.hook.probe.input_shapes import InputShapes
from oomtune.hook.probe.step_peaks import StepPeaks
from oomtune.hook.probe.step_phases import StepPhases


class LateKernels:
    """Stands in for a GPU's memory on which kernels were loaded since the driver was last asked."""

    held = 700

    def measure(self):
        self.held = 790

    def reset(self):
        pass

    def live(self):
        return 600

    def peaks(self):
        return self.held, 600, 640


def seen(*peaks, least=()):
    result = StepPeaks()
    for number, peak in enumerate(peaks):
        result.see(peak // 2)
        result.see(peak)
        result.step_done(number in least)
    return result


def explained(growths):
    """(bytes left behind, shape of the inputs) of each step."""
    shapes, starts = InputShapes(), [0]
    for left, shape in growths:
        shapes.note([Inputs(shape)])
        shapes.step_done()
        starts.append(starts[-1] + left)
    return shapes.explain(starts[:-1])


class Inputs:
    grad_fn = None

    def __init__(self, *shape):
        self.shape = shape


class InputShapesTest(unittest.TestCase):
    LENGTHS = (9, 8, 7, 9, 6, 8, 5, 9, 7, 4, 6, 9, 3, 8, 9, 5, 2, 9)

    def test_explain_growth_that_comes_with_new_ones(self):
        news = [length not in self.LENGTHS[:at] for at, length in enumerate(self.LENGTHS)]
        self.assertTrue(explained([(400 if new else 0, one) for new, one in zip(news, self.LENGTHS)]))
        self.assertTrue(
            explained([(400 if new else (-3, 3)[at % 2], one) for at, (new, one) in enumerate(zip(news, self.LENGTHS))])
        )

    def test_explain_no_growth_that_comes_with_known_ones_too(self):
        self.assertFalse(explained([(400, one) for one in self.LENGTHS]))
        self.assertFalse(explained([(400, 9)] * 18))
        # there are no known ones to tell by
        self.assertFalse(explained([(400, one) for one in range(18)]))


class StepPeaksTest(unittest.TestCase):
    def test_differ_by_what_most_steps_do_not_take(self):
        self.assertEqual(seen(900, 100, 104, 100, 104, 100, 104).spread(), 4)
        self.assertEqual(seen(900, *[100] * 9).spread(), 0)
        # the last batch of each pass is smaller
        self.assertEqual(seen(900, 100, 100, 100, 20, 100, 100, 100, 20).spread(), 0)
        self.assertIsNone(seen(900, 100, 200).spread())

    def test_leave_more_to_expect_where_the_highest_lie_apart(self):
        self.assertEqual(seen(0, 10, 20, 30, 40, 50, 60, 70, 80, 90).excess(), 20)
        # one that stands out, steps of two kinds, and a few small ones tell of none that is higher
        for peaks in ([10] * 8 + [90], [10, 10, 10, 10, 90] * 2, [90, 90, 90, 90, 10] * 2):
            self.assertEqual(seen(0, *peaks).excess(), 0)
        self.assertIsNone(seen(0, 10, 20, 30, 40).excess())

    def test_count_shorter_samples_only_where_they_take_more_than_the_longest(self):
        shorter = range(1, 12, 2)
        self.assertEqual(seen(*[100, 30] * 6, least=shorter).spread(), 0)
        self.assertGreater(seen(100, 130, *[100, 30] * 5, least=shorter).spread(), 0)

    def test_are_nothing_where_memory_is_not_counted(self):
        result = StepPeaks()
        for _ in range(9):
            result.see(None)
            result.step_done()
        self.assertIsNone(result.spread())
        self.assertIsNone(result.excess())

    def test_count_what_kernels_took_since_the_driver_was_last_asked(self):
        phases = StepPhases(LateKernels())
        phases.step_starts()
        phases.step_ends()
        self.assertEqual(phases.peaks()["total_bytes"], 790)


if __name__ == "__main__":
    unittest.main()
