"""What holds of two or three samples and not of a whole micro-batch, or not any more later in training."""

import sys
import unittest

import torch
from cut_case import CutCase, net
from torch import nn


def many():
    return torch.randn(256, 8)


class Capacity(nn.Module):
    """An expert that takes eight samples of each batch at least, and passes over those beyond."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        taken = self.net(x)
        return torch.where((torch.arange(len(x)) < max(8, len(x) // 2))[:, None], taken, torch.zeros_like(taken))


class Late(nn.Module):
    """In its third step, and later, a term or an output that compares the samples."""

    def __init__(self, loss):
        super().__init__()
        self.net, self.loss = net(), loss
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        found = self.net(x)
        if not self.loss:
            return found - found.mean(0) if self.calls > 2 else found
        return found.pow(2).mean() + (found.std(0).pow(2).sum() if self.calls > 2 else 0)


class Looks(CutCase):
    def test_around_a_capacity_that_few_samples_do_not_reach_its_model_is_cut(self):
        self.same(lambda: Capacity(net()), lambda model, x: model(x).pow(2).mean(), many, batch=256)

    def test_without_a_model_inside_it_is_refused(self):
        self.refused(
            "depends on the other samples of the batch",
            lambda: Capacity(nn.Linear(8, 4)),
            lambda model, x: model(x).pow(2).mean(),
            many,
            batch=256,
        )

    def test_beside_it_other_models_are_cut(self):
        make = lambda: nn.Sequential(net(), Capacity(nn.Linear(4, 4)))  # noqa: E731
        self.same(make, lambda model, x: model(x).pow(2).mean(), many, batch=256)

    def test_what_depends_on_the_other_samples_only_later_ends_the_job_then(self):
        late = "depends on the other samples of the batch, which it did not at first"
        self.refused(late, lambda: Late(False), lambda model, x: model(x).pow(2).mean(), many, batch=256, steps=4)

    def test_a_loss_that_compares_the_samples_only_later_does_so_too(self):
        late = "neither a mean nor a sum .*, which it did not at first"
        self.refused(late, lambda: Late(True), lambda model, x: model(x), many, batch=256, steps=4)

    def test_rounding_in_lower_precision_is_no_difference(self):
        def half(model, x):
            with torch.autocast("cpu", torch.bfloat16):
                return model(x.float()).float().pow(2).mean()

        def weights(model, x):
            return model(x.bfloat16()).float().pow(2).mean()

        deep = lambda: nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(8)))  # noqa: E731
        for make, loss in ((lambda: deep().float(), half), (lambda: deep().bfloat16(), weights)):
            self.train(make, loss, many, 64, batch=256, steps=17)
            self.assertEqual(self.cut.count, 17)


class Maker(nn.Module):
    """Makes a layer in its first forward pass, in the place of an attribute."""

    def __init__(self):
        super().__init__()
        self.net, self.head = net(), None

    def forward(self, x):
        found = self.net(x)
        if self.head is None:
            self.head = nn.Linear(found.shape[1], 2)
        return self.head(found)


class MadeLayers(CutCase):
    def test_a_layer_that_a_look_made_hides_behind_no_attribute(self):
        from oomtune.hook.cut.sandbox import Sandbox

        model = Maker()
        names = [name for name, _ in model.named_modules()]
        torch.manual_seed(1)
        with Sandbox(torch, model, []).entered(False, False), torch.no_grad():
            model(torch.randn(4, 8))
        self.assertEqual([name for name, _ in model.named_modules()], names)
        x = torch.randn(4, 8)
        first = model(x)
        self.assertIs(model.head, dict(model.named_modules())["head"])
        self.assertTrue(torch.equal(model(x), first))


if __name__ == "__main__":
    sys.exit(unittest.main())
