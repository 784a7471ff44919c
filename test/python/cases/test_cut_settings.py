"""Modules whose settings a script changes between their calls."""

import unittest
from unittest import mock

import torch
from cut_case import CutCase, net, rows
from torch import nn


class Switched(nn.Module):
    """What a script sets on it says what it makes of the samples, and of how many it takes the mean."""

    def __init__(self):
        super().__init__()
        self.net, self.criterion, self.other = net(), nn.MSELoss(), nn.MSELoss(reduction="sum")
        self.centre, self.step, self.weight = False, 0, 0.0
        self.register_buffer("scale", None)
        self.options, self.calls = {"centre": False}, 0

    def forward(self, x, weight=0.0):
        self.calls += 1
        found = self.net(x)
        if self.centre or self.options["centre"]:
            found = found - found.mean(0)
        if self.scale is not None:
            found = found / found.std(0, unbiased=False)
        loss = self.criterion(found, torch.zeros_like(found))
        return loss + (weight or self.weight) * found.std(0, unbiased=False).mean()


class Changed(CutCase):
    def after(self, change, at=2):
        """Refused where the script makes the change before that step."""
        done = []

        def loss(model, x):
            done.append(model)
            model.step += 1
            if len(done) == at:
                change(model)
            return model(x)

        words = "Switched cannot be cut: .*, since settings of it were changed between its calls"
        self.refused(words, Switched, loss, rows, steps=at + 1)
        self.assertEqual(len(done), at)

    def test_a_setting_that_makes_the_samples_depend_on_one_another(self):
        for name, value in (("centre", True), ("scale", torch.ones(1)), ("weight", 0.5), ("options", {"centre": True})):
            self.after(lambda model: setattr(model, name, value))  # noqa: B023
        self.after(lambda model: model.options.update(centre=True))
        # Another setting has changed so often that it is hardly looked at any more.
        self.after(lambda model: setattr(model, "centre", True), at=12)

    def test_hooks_that_are_added_later(self):
        hook = lambda layer, given, found: found - found.mean(0)  # noqa: E731
        self.after(lambda model: model.net.register_forward_hook(hook))

    def test_another_criterion_is_reduced_in_its_own_way(self):
        for change in (
            lambda model: setattr(model, "criterion", nn.MSELoss(reduction="sum")),
            lambda model: setattr(model, "criterion", model.other),
            lambda model: setattr(model.criterion, "reduction", "sum"),
        ):
            done = []

            def loss(model, x):
                done.append(0)  # noqa: B023
                if len(done) % 3 == 0:  # noqa: B023
                    change(model)  # noqa: B023
                return model(x) / 100

            self.same(Switched, loss, rows)

    def test_a_number_that_is_zero_at_first_is_another_kind_of_input(self):
        weights = iter((0.0, 0.0, 0.5) * 2)
        self.same(Switched, lambda model, x: model(x, next(weights)), rows)
        self.assertIn("uncut", self.warned)

    def test_what_changes_in_every_step_is_looked_at_now_and_then(self):
        def loss(model, x):
            model.step += 1
            return model(x)

        from oomtune.hook.cut.call_looks import CallLooks

        check, checked = CallLooks.check, []
        with mock.patch.object(CallLooks, "check", lambda *given: (checked.append(0), check(*given))):
            self.same(Switched, loss, rows, steps=12)
        # The first, those after the first three changes, and after the 2nd, 4th and 8th of the eight later ones.
        self.assertEqual(len(checked), 1 + 3 + 3)
        self.assertEqual(self.warned, ["kept"])


if __name__ == "__main__":
    unittest.main()
