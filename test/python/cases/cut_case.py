"""A cut in this process: modules of all kinds trained alone and cut, and their weights beside one another."""

import os
import sys
import unittest
from unittest import mock

import torch
from support import ROOT
from torch import nn


class Listener:
    def before_step(self, optimizer):
        pass

    def after_step(self, optimizer):
        pass


class Refused(Exception):
    pass


def refuse(reason):
    raise Refused(reason)


class CutCase(unittest.TestCase):
    """Weights after three steps, uncut and cut."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, os.path.join(ROOT, "python"))
        from oomtune.hook.apply.gradient_accumulator import GradientAccumulator
        from oomtune.hook.cut import Cut
        from oomtune.hook.watch.optimizers import Optimizers

        cls.warned = []
        optimizers = Optimizers(torch, GradientAccumulator(), Listener())
        optimizers.install()
        cls.cut = Cut(torch, optimizers, refuse, lambda code, message: cls.warned.append(code))
        cls.cut.install()

    def setUp(self):
        torch.set_default_dtype(torch.float64)
        self.warned.clear()

    def tearDown(self):
        self.cut.release()
        torch.set_default_dtype(torch.float32)

    def train(self, make, loss, inputs, micro=None, batch=64, steps=3, tokens=None):
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.cut.release()
        if micro:
            self.cut.engage(micro, batch, tokens=tokens)
        for step in range(steps):
            torch.manual_seed(step + 1)
            given = inputs()
            optimizer.zero_grad()
            loss(model, given).backward()
            optimizer.step()
            if micro:
                self.cut.stepped()
        self.cut.release()
        # (a lazy layer that was never called has no weights yet, and types of 8 bits cannot be computed with)
        made = [each.detach() for each in model.parameters() if not nn.parameter.is_lazy(each)]
        return [each.float() if each.element_size() == 1 else each.clone() for each in made]

    def same(self, make, loss, inputs, micro=16, tolerance=1e-9, **more):
        bare = self.train(make, loss, inputs, **dict(more, tokens=None))
        tuned = self.train(make, loss, inputs, micro, **more)
        self.assertGreater(self.cut.count, 0)
        for one, other in zip(bare, tuned):
            self.assertLess(((one - other).norm() / one.norm().clamp_min(1e-6)).item(), tolerance)

    def without_looks(self):
        """For what counts the forward passes of training: no whole micro-batch is looked at."""
        return mock.patch("oomtune.hook.cut.call_looks.is_due", lambda call: False)

    def refused(self, words, make, loss, inputs, **more):
        with self.assertRaisesRegex(Refused, words):
            self.train(make, loss, inputs, 16, **more)


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def rows():
    return torch.randn(64, 8)


def mean_square(model, x):
    return model(x).pow(2).mean()


def tokens():
    given, wanted = torch.randint(1, 50, (64, 12)), torch.randint(1, 50, (64, 12))
    wanted[torch.rand(64, 12) < torch.rand(64, 1)] = -1
    return given, wanted
