"""keep_effective_batch(): memory that runs out costs a smaller micro-batch, never the effective batch."""

import os
import sys
import unittest
from unittest import mock

from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "python"))

import oomtune
from oomtune.effective_batch import divisors


class Fits:
    """Stands in for a training for which samples up to `most` fit."""

    def __init__(self, most, error=RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")):
        self.most = most
        self.error = error
        self.tried = []

    def __call__(self, micro_batch, accumulation, *args, **kwargs):
        self.tried.append((micro_batch, accumulation))
        if micro_batch > self.most:
            raise self.error
        return args, kwargs


class EffectiveBatch(unittest.TestCase):
    def decorated(self, fits, *args, **kwargs):
        @oomtune.keep_effective_batch(*args, **kwargs)
        def train(micro_batch, accumulation, *rest, **named):
            return fits(micro_batch, accumulation, *rest, **named)

        return train

    def test_what_fits_runs_once(self):
        fits = Fits(64)
        self.assertEqual(self.decorated(fits, 64)(1, b=2), ((1,), {"b": 2}))
        self.assertEqual(fits.tried, [(64, 1)])

    def test_smaller_micro_batches_keep_the_effective_batch(self):
        fits = Fits(7)
        self.decorated(fits, 36)()
        self.assertEqual(fits.tried, [(36, 1), (18, 2), (12, 3), (9, 4), (6, 6)])

    def test_the_first_try_can_be_said(self):
        fits = Fits(7)
        self.decorated(fits, 36, micro_batch=10)()
        self.assertEqual(fits.tried, [(9, 4), (6, 6)])
        self.assertEqual(list(divisors(7)), [7, 1])

    def test_nothing_that_fits_is_told(self):
        with self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_EXHAUSTED"):
            self.decorated(Fits(0), 4)()

    def test_another_error_is_the_callers(self):
        for error in (ValueError("out of memory"), RuntimeError("shapes differ")):
            fits = Fits(0, error)
            with self.assertRaises(type(error)):
                self.decorated(fits, 4)()
            self.assertEqual(len(fits.tried), 1)

    def test_memory_of_the_host_counts_too(self):
        fits = Fits(2, MemoryError())
        self.decorated(fits, 4)()
        self.assertEqual(fits.tried, [(4, 1), (2, 2)])

    def test_a_search_sees_the_error_itself(self):
        with mock.patch.dict(os.environ, {"OOMTUNE_HOOK": "measure"}), self.assertRaises(RuntimeError):
            self.decorated(Fits(1), 4)()

    def test_ranks_are_refused(self):
        refused = self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_USAGE")
        with mock.patch.dict(os.environ, {"WORLD_SIZE": "2"}), refused:
            self.decorated(Fits(1), 4)()

    def test_what_the_failed_try_held_is_freed(self):
        import weakref

        class Held:
            pass

        alive = []

        @oomtune.keep_effective_batch(4)
        def train(micro_batch, accumulation):
            self.assertEqual([one() for one in alive], [None] * len(alive))
            held = Held()
            alive.append(weakref.ref(held))
            if micro_batch > 1:
                raise RuntimeError("CUDA out of memory.")

        train()
        self.assertEqual(len(alive), 3)


class ExecutableBatchSize(unittest.TestCase):
    def test_sizes_go_down_until_one_fits_and_stay_there(self):
        tried = []

        @oomtune.find_executable_batch_size(starting_batch_size=100)
        def train(batch_size):
            tried.append(batch_size)
            if batch_size > 75:
                raise RuntimeError("CUDA out of memory.")

        train()
        train()
        self.assertEqual(tried, [100, 90, 81, 72, 72])

    def test_zero_and_other_errors(self):
        @oomtune.find_executable_batch_size(starting_batch_size=2)
        def never(batch_size):
            raise RuntimeError("CUDA out of memory.")

        with self.assertRaisesRegex(RuntimeError, "No executable batch size found, reached zero."):
            never()


if __name__ == "__main__":
    unittest.main()
