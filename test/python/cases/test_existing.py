"""What the process holds is found also after a fork has set it apart from collections."""

import gc
import os
import sys
import unittest
import unittest.mock

import torch
from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.watch import existing, models, other_optimizers
from oomtune.hook.watch.models import Modules
from oomtune.hook.watch.other_optimizers import OtherOptimizers


class Parameters:
    def __init__(self, model):
        self._model = model

    def parameters(self):
        return list(self._model.parameters())


class Plain:
    """An optimizer that is none of torch's."""

    def __init__(self, parameters):
        self.state, self.param_groups = {}, [{"params": list(parameters)}]

    def step(self):
        pass

    def zero_grad(self):
        pass


class Existing(unittest.TestCase):
    def parameters(self):
        return list(self.model.parameters())

    def setUp(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.optimizer = Plain(self.model.parameters())
        gc.freeze()
        self.addCleanup(gc.unfreeze)

    def test_a_model_that_was_made_before_the_fork(self):
        self.assertEqual([id(root) for root in Modules(torch, Parameters(self.model)).roots()], [id(self.model)])
        self.assertGreater(gc.get_freeze_count(), 0)

    def test_models_of_before_and_after_the_look_ahead_of_a_fork_server(self):
        later = []
        modules = Modules(torch, self)
        modules.look_ahead()
        with unittest.mock.patch.object(
            models, "existing_objects", side_effect=AssertionError("all were gone through")
        ):
            later.append(torch.nn.Sequential(self.model))
            self.assertEqual([id(root) for root in modules.roots()], [id(later[0])])

    def test_a_model_that_a_script_has_set_apart_after_that_look(self):
        modules = Modules(torch, self)
        modules.look_ahead()
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        gc.freeze()
        self.assertEqual([id(root) for root in modules.roots()], [id(self.model)])

    def test_a_model_that_we_have_set_apart_after_that_look(self):
        modules = Modules(torch, self)
        modules.look_ahead()
        outer = torch.nn.Sequential(self.model)
        existing.existing_objects()
        self.assertEqual([id(root) for root in modules.roots()], [id(outer)])

    def test_an_optimizer_that_was_made_before_the_fork(self):
        self.assertIn(self.optimizer, OtherOptimizers(torch).find())
        self.assertGreater(gc.get_freeze_count(), 0)

    def test_none_is_looked_for_where_memory_has_run_out(self):
        with unittest.mock.patch.object(other_optimizers, "existing_objects", side_effect=MemoryError):
            self.assertEqual(OtherOptimizers(torch).find(), [])


if __name__ == "__main__":
    unittest.main()
