"""The optimizer's state in host memory between steps, for which files stand where there is no GPU: the same losses, weights and state."""

import importlib.util
import os
import sys
import tempfile
import types
import unittest

import torch
from support import FIXTURES, ROOT, probe, run
from test_training_frameworks import ACCELERATE, LIGHTNING, TRAINER

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.apply.optimizer_on_host import OptimizerOnHost

HOST = os.path.join(os.path.dirname(FIXTURES), "worker", "state")
ON = {"beside": [HOST], "OOMTUNE_HOOK_KNOBS": "optimizer_on_host", "OOMTUNE_OPTIMIZER_ON_HOST": 1}

#: Trains with what a script may do around a step; `kind` and `options` of the optimizer are given.
SCRIPT = """
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
apart = sys.modules.get("oomtune.hook.apply.host_copies")
kind, options = sys.argv[1], eval(sys.argv[2])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 8))
last = [*model[2].parameters(), *model[4].parameters()]
groups = [model[0].weight, model[2].weight] if kind == "Muon" else [{"params": model[0].parameters(), "lr": 0.01}, {"params": last}]
optimizer = getattr(torch.optim, kind)(groups, **options)
calls = []
if hasattr(optimizer, "register_step_pre_hook"):
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
if os.path.exists("saved.pt"):
    optimizer.load_state_dict(torch.load("saved.pt")["optimizer"])
    print([each for each in optimizer.state[model[2].weight] if apart and not apart.HostCopies.on_device(optimizer.state[model[2].weight][each])])
losses = []
for number, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(48, 200), torch.randint(8, (48,))), batch_size=8)):
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss
    if number % 2:
        loss = optimizer.step(closure)
    else:
        loss = closure()
        optimizer.step()
    schedule.step()
    losses.append(loss.item())
print(getattr(apart.HostCopies, "moved", 0) if apart else 0)
torch.save({"losses": losses, "calls": calls, "weights": model.state_dict(), "optimizer": optimizer.state_dict()}, "saved.pt")
"""

KINDS = [
    ("Adam", {}),
    ("AdamW", {"amsgrad": True}),
    ("Adam", {"foreach": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {}),
    ("NAdam", {}),
    ("Rprop", {}),
]
if hasattr(torch.optim, "Muon"):
    KINDS += [("Muon", {}), ("AdamW", {"fused": True})]


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


class State(unittest.TestCase):
    def trained(self, folder, *arguments, **on):
        result = run(SCRIPT, "apply", cwd=folder, arguments=[str(each) for each in arguments], **on)
        self.assertEqual(result.status, 0, result.errors)
        return torch.load(os.path.join(folder, "saved.pt")), result.output.split("\n")[:-1]

    def test_each_kind_trains_to_the_same_losses_weights_and_state(self):
        for kind, options in KINDS:
            with self.subTest(
                kind, **options
            ), tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
                plain, _ = self.trained(one, kind, options)
                moved, (tensors,) = self.trained(other, kind, options, **ON)
                self.assertTrue(same(plain, moved))
                self.assertGreaterEqual(int(tensors), 12)

    def test_a_checkpoint_goes_on_where_it_was_and_no_more_than_one_tensor_of_it_comes_to_the_device(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            self.trained(one, "AdamW", {})
            plain, _ = self.trained(one, "AdamW", {})
            self.trained(other, "AdamW", {}, **ON)
            moved, (places, _) = self.trained(other, "AdamW", {}, **ON)
            self.assertTrue(same(plain, moved))
            if int(torch.__version__.split(".")[0]) > 1:  # before, torch loads the whole state at once
                self.assertEqual(places, "['exp_avg', 'exp_avg_sq']")

    def test_a_model_that_is_wrapped_once_its_optimizer_is_made_is_found_as_it_is_then(self):
        class_of = "class Wrapped(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n        self.inner = inner\n    def forward(self, x): return self.inner(x)\n"
        end = "import oomtune.hook.hook as hook\nimport gc\ngc.unfreeze()\nfound = [each for each in gc.get_objects() if type(each).__name__ == 'Modules']\nassert [type(each).__name__ for each in found[0].roots()] == ['Wrapped'], found[0].roots()\n"
        script = SCRIPT.replace("losses = []", class_of + "outer = Wrapped(model)\nlosses = []").replace(
            "(model(x), y)", "(outer(x), y)"
        )
        with tempfile.TemporaryDirectory() as folder:
            result = run(script + end, "apply", cwd=folder, arguments=["AdamW", "{}"], **ON)
            self.assertEqual(result.status, 0, result.errors)

    def test_a_probe_leaves_the_optimizer_as_it_found_it(self):
        end = """
import oomtune.hook.apply.host_copies as moved
state = optimizer.state[model[2].weight]
assert moved.HostCopies.moved, "nothing went to the host"
assert all(moved.HostCopies.on_device(each) for each in state.values()), "it is still there"
assert "load_state_dict" not in optimizer.__dict__
"""
        script = SCRIPT + end
        for rungs in ([True, False], [False, True, False], [False, True]):
            with self.subTest(rungs=rungs):
                answers = [probe(8, steps=2, optimizer_on_host=on) for on in rungs] + [{"t": "go"}]
                result = run(script, "probe", answers, arguments=["AdamW", "{}"], beside=[HOST])
                self.assertEqual(result.status, 0, result.errors)
                self.assertEqual(len(result.of("measured")), len(rungs))
                self.assertTrue(result.one("loop")["can"]["optimizer_on_host"])

    def test_a_loss_scaler_of_the_script_skips_steps_as_it_does(self):
        if not hasattr(torch.amp, "GradScaler"):
            self.skipTest("a loss scaler for the CPU came with torch 2.3")
        script = (
            SCRIPT.replace("losses = []", "losses = []; scaler = torch.amp.GradScaler('cpu', growth_interval=2)")
            .replace(
                "        loss.backward()",
                "        scaler.scale(loss * (float('inf') if number == 2 else 1)).backward(); scaler.unscale_(optimizer)",
            )
            .replace(
                "        loss = optimizer.step(closure)",
                "        loss = closure(); scaler.step(optimizer); scaler.update()",
            )
            .replace("        optimizer.step()", "        scaler.step(optimizer); scaler.update()")
        )
        for options in ({}, {"fused": True}):
            with self.subTest(**options):
                saved = []
                for on in ({}, ON):
                    with tempfile.TemporaryDirectory() as folder:
                        result = run(script, "apply", cwd=folder, arguments=["AdamW", str(options)], **on)
                        self.assertEqual(result.status, 0, result.errors)
                        saved.append(torch.load(os.path.join(folder, "saved.pt")))
                self.assertTrue(same(*saved))

    def test_frameworks_that_wrap_the_optimizer_train_to_the_same_weights(self):
        small = "import oomtune.hook.apply.step_in_turns as turns\nturns.LARGE = 8\n"
        end = "\nimport oomtune.hook.apply.host_copies as copies\nprint('moved', getattr(copies.HostCopies, 'moved', 0))\n"
        scripts = {
            "accelerate": ACCELERATE,
            "lightning": LIGHTNING % 2,
            "transformers": TRAINER.replace("optim='sgd'", "optim='adamw_torch'") % 2,
        }
        there = [name for name in scripts if importlib.util.find_spec(name)]
        if not there:
            self.skipTest("no framework is installed for this interpreter")
        for name in there:
            with self.subTest(name):
                weights, moved = [], []
                for on in ({}, ON):
                    with tempfile.TemporaryDirectory() as folder:
                        result = run(small + scripts[name] + end, "apply", cwd=folder, imported=(name,), **on)
                        self.assertEqual(result.status, 0, result.errors)
                        weights.append(torch.load(os.path.join(folder, "out.pt")))
                        moved.append(int(result.output.split("moved ")[-1]))
                self.assertTrue(same(*weights))
                self.assertTrue(moved[0] == 0 < moved[1], moved)

    def test_what_cannot_wait_on_the_host_is_told(self):
        weights = [torch.nn.Parameter(torch.ones(2))]
        on_gpu = [types.SimpleNamespace(is_cuda=True)]

        def rung(optimizer, *modules, found=on_gpu):
            optimizers = types.SimpleNamespace(known=lambda: [optimizer], parameters=lambda: found)
            return OptimizerOnHost(torch, types.SimpleNamespace(all=lambda: modules), optimizers)

        class Own(torch.optim.Adam):
            pass

        for optimizer in (torch.optim.LBFGS(weights), torch.optim.SGD(weights, lr=0.1), Own(weights)):
            self.assertIn("no optimizer is one of torch's own", rung(optimizer).why_not())
        graphs = torch.optim.Adam(weights)
        graphs.param_groups[0]["capturable"] = True
        self.assertIn("not for CUDA graphs", rung(graphs).why_not())

        class FullyShardedDataParallel(torch.nn.Linear):
            pass

        adam = torch.optim.Adam(weights)
        self.assertIn("sharded", rung(adam, FullyShardedDataParallel(1, 1)).why_not())
        self.assertEqual((rung(adam).why_not(), rung(adam).possible()), (None, True))
        # Nothing is to be gained where the device's memory is the host's.
        here = rung(adam, found=weights)
        self.assertEqual((here.why_not(), here.possible()), (None, False))


if __name__ == "__main__":
    unittest.main()
