"""Autocast, checkpointing and larger batches on a script that knows nothing of them."""

import os
import sys
import tempfile
import unittest

import torch
from support import ROOT, probe, run

sys.path.insert(0, os.path.join(ROOT, "python"))

SCRIPT = """
import copy, pickle, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2))
        self.passes = 0
    def forward(self, x):
        self.passes += 1
        return x + self.body(x)
model = nn.Sequential(nn.Linear(4, 6), Block(), Block(), nn.LayerNorm(6), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
loader = DataLoader(data, batch_size=8, shuffle=True)
for x, y in loader:
    optimizer.zero_grad()
    output = model(x)
    assert output.dtype == torch.float32
    nn.functional.mse_loss(output, y).backward()
    optimizer.step()
model.eval()
twin = copy.deepcopy(model)
again = pickle.loads(pickle.dumps(model))
with torch.no_grad():
    for block in (model[1], twin[1], again[1]): block.passes = 0
    twin(x); again(x)
assert (model[1].passes, twin[1].passes, again[1].passes) == (0, 1, 1)
torch.save({'weights': model.state_dict(), 'batch': len(x), 'batches': len(loader)}, 'out.pt')
"""


class Knobs(unittest.TestCase):
    def train(self, **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(SCRIPT, "apply", cwd=folder, **env)
            self.assertEqual(result.status, 0, result.errors)
            return torch.load(folder + "/out.pt"), result

    def test_checkpointing_changes_no_weight_and_no_statistic(self):
        bare, _ = self.train()
        tuned, _ = self.train(OOMTUNE_CHECKPOINTING=1, OOMTUNE_HOOK_KNOBS="checkpointing")
        for name, value in bare["weights"].items():
            self.assertTrue(torch.equal(value, tuned["weights"][name]), name)

    def test_autocast_is_near_and_not_the_same(self):
        bare, _ = self.train()
        tuned, _ = self.train(OOMTUNE_AMP="bf16", OOMTUNE_HOOK_KNOBS="amp")
        name = "4.weight"
        self.assertFalse(torch.equal(bare["weights"][name], tuned["weights"][name]))
        self.assertTrue(torch.allclose(bare["weights"][name], tuned["weights"][name], atol=0.05))

    def test_the_first_step_has_the_knobs_already(self):
        text = (
            "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
            "class Inner(nn.Linear):\n"
            "    def forward(self, x):\n"
            "        print(torch.is_autocast_cpu_enabled())\n"
            "        return super().forward(x)\n"
            "model = nn.Sequential(Inner(4, 4), nn.Linear(4, 1))\n"
            "with torch.no_grad(): model(torch.randn(2, 4))\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "%s"
            "    model(x).mean().backward(); optimizer.step()\n"
        )
        loops = {
            "loader": "for x, in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4):\n",
            "no loader": "for x in torch.randn(2, 4, 4):\n",
        }
        for name, loop in loops.items():
            with self.subTest(name):
                result = run(text % loop, "apply", OOMTUNE_AMP="bf16", OOMTUNE_HOOK_KNOBS="amp")
                self.assertEqual(result.output.split(), ["False", "True", "True"], result.errors)

    def test_knobs_that_argv_carries_are_left_alone(self):
        bare, _ = self.train()
        tuned, _ = self.train(
            OOMTUNE_AMP="bf16", OOMTUNE_CHECKPOINTING=1, OOMTUNE_MICRO_BATCH=2, OOMTUNE_ACCUMULATION=4
        )
        for name, value in bare["weights"].items():
            self.assertTrue(torch.equal(value, tuned["weights"][name]), name)

    def test_a_larger_batch(self):
        tuned, result = self.train(OOMTUNE_MICRO_BATCH=16, OOMTUNE_HOOK_KNOBS="micro_batch")
        self.assertEqual((tuned["batch"], tuned["batches"]), (16, 4))
        self.assertEqual([m["n"] for m in result.of("step")], [1, 2, 3, 4])
        self.assertEqual([m["samples"] for m in result.of("step")], [16, 32, 48, 64])

    def test_a_larger_effective_batch(self):
        tuned, result = self.train(
            OOMTUNE_MICRO_BATCH=16, OOMTUNE_ACCUMULATION=2, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation"
        )
        self.assertEqual((tuned["batch"], tuned["batches"]), (32, 2))
        self.assertEqual([m["samples"] for m in result.of("step")], [32, 64])

    def test_a_data_set_of_whole_batches_is_cut(self):
        for cut, rows in (("loader", ["4", "2", "4", "2"]), ("model", ["6", "6"])):
            with self.subTest(cut):
                self.whole_batches(cut, rows)

    def whole_batches(self, cut, rows):
        result = run(
            "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, IterableDataset\n"
            "class Stream(IterableDataset):\n"
            "    def __iter__(self): return iter(torch.randn(2, 6, 4))\n"
            "model = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for x in DataLoader(Stream(), batch_size=None):\n"
            "    print(len(x)); optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()\n",
            "apply",
            OOMTUNE_MICRO_BATCH=4,
            OOMTUNE_ACCUMULATION=1,
            OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
            OOMTUNE_CUT=cut,
        )
        self.assertEqual(result.output.split(), rows, result.errors)
        self.assertEqual([m["n"] for m in result.of("step")], [1, 2])

    def test_batch_normalisation_is_warned_of_when_batches_are_cut(self):
        _, result = self.train(
            OOMTUNE_MICRO_BATCH=4, OOMTUNE_ACCUMULATION=2, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation"
        )
        # (its blocks count their passes, too)
        self.assertEqual([m["code"] for m in result.of("warn")], ["batch_norm", "kept", "random_draws"])

    def test_frozen_batch_normalisation_is_not_warned_of(self):
        frozen = "model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))\nmodel[1].eval()"
        for model, body, warned in (
            (frozen, "pass", []),
            (frozen, "model.train()", ["batch_norm"]),
            (frozen + "; model.eval()", "model.train()", ["batch_norm"]),
            (frozen + "; model.eval()", "model.train(); model[1].eval()", []),
            (frozen + "; model.eval()", "pass", []),
        ):
            for cut in ("model", "loader"):
                with self.subTest(model=model, body=body, cut=cut):
                    result = run(
                        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
                        + model
                        + "\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
                        "for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8):\n"
                        "    %s; optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()\n" % body,
                        "apply",
                        OOMTUNE_MICRO_BATCH=4,
                        OOMTUNE_ACCUMULATION=2,
                        OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
                        OOMTUNE_CUT=cut,
                    )
                    self.assertEqual(result.status, 0, result.errors)
                    self.assertEqual([m["code"] for m in result.of("warn") if m["code"] == "batch_norm"], warned)

    def test_random_draws_are_told_whatever_makes_the_micro_batches(self):
        for more in (
            {"OOMTUNE_CUT": "loader", "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"},
            {"OOMTUNE_HOOK_KNOBS": "", "OOMTUNE_OWN_ACCUMULATION": 1},  # the script's own flags
        ):
            with self.subTest(more):
                _, result = self.train(OOMTUNE_MICRO_BATCH=4, OOMTUNE_ACCUMULATION=2, **more)
                self.assertEqual([m["code"] for m in result.of("warn")], ["batch_norm", "random_draws"])

    MOVING = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.copy = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer('book', torch.zeros(4))
        self.register_buffer('table', torch.arange(4.))
        self.register_buffer('cache', torch.zeros(0))
        self.elsewhere = nn.Linear(4, 4, device='meta').requires_grad_(False)
    def forward(self, x):
        if len(self.cache) < 9: self.cache = torch.zeros(len(self.cache) + 4)
        %s
        return self.net(x)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8):
    optimizer.zero_grad(); model(x).pow(2).mean().backward(); optimizer.step()
"""

    def test_what_a_forward_pass_moves_is_told_whatever_makes_the_micro_batches(self):
        copies = "self.copy.weight.data = self.copy.weight.data * 0.5 + self.net.weight.data * 0.5"
        for more in (
            {"OOMTUNE_CUT": "loader", "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"},
            {"OOMTUNE_HOOK_KNOBS": "", "OOMTUNE_OWN_ACCUMULATION": 1},  # the script's own flags
        ):
            for line, name in (
                ("self.book.data.lerp_(x.mean(0), 0.5)", "Model.book"),
                (copies, "Linear.weight"),
                ("self.table.copy_(self.table)", None),
            ):
                with self.subTest(more, line=line):
                    result = run(self.MOVING % line, "apply", OOMTUNE_MICRO_BATCH=4, OOMTUNE_ACCUMULATION=2, **more)
                    told = [(m["code"], name in m["message"]) for m in result.of("warn") if name]
                    self.assertEqual(told, [("buffers", True)] if name else [], result.errors)
                    self.assertEqual(len(result.of("warn")), len(told))

    def test_a_forward_pass_that_cannot_be_looked_at_goes_on(self):
        from oomtune.hook.apply.first_passes import FirstPasses

        def passed(module, *given, kept=None, call=None):
            """What is told of two passes. `kept`: a buffer."""
            told = []
            passes = FirstPasses(torch, lambda code, message: told.append(code))
            if kept is not None:
                module.register_buffer("kept", kept)
            for _ in range(2):
                passes.around(module, call or module.forward, *given)
            return told

        nn, x = torch.nn, torch.randn(3, 8)
        layer = lambda: nn.Linear(8, 8, bias=False).requires_grad_(False)  # noqa: E731
        self.assertEqual(passed(nn.ModuleList([nn.LazyLinear(4)]), x, call=lambda x: x), [])
        self.assertEqual(passed(layer(), x, kept=torch.eye(3).to_sparse()), [])
        self.assertEqual(passed(layer(), x, kept=torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])), [])
        self.assertEqual(passed(layer(), x, kept=torch.quantize_per_tensor(torch.ones(5), 0.1, 0, torch.qint8)), [])

        sparse, emptied, swapped = layer(), layer(), layer()
        sparse.matrix = nn.Parameter(torch.eye(3).to_sparse())
        self.assertEqual(passed(sparse, x), [])

        def empty(x):
            emptied.weight.data = torch.empty(0)

        def swap(x):
            swapped.weight.data = swapped.weight.data.clone()

        self.assertEqual(passed(emptied, x, call=empty), [])
        self.assertEqual(passed(swapped, x, call=swap), [])

        def follow(x):
            swapped.weight.data = swapped.weight.data * 0.9

        self.assertEqual(passed(swapped, x, call=follow), ["buffers"])

        def failing(x):
            raise LookupError("the script's own")

        with self.assertRaisesRegex(LookupError, "the script's own"):
            passed(layer(), x, call=failing)

        if hasattr(torch, "float8_e4m3fn"):
            small = layer()
            small.weight.data = small.weight.data.to(torch.float8_e4m3fn)
            self.assertEqual(passed(small, x, call=lambda x: x @ small.weight.float()), [])

            def write(x):
                small.weight.data.copy_(small.weight.float() * 0.5)

            self.assertEqual(passed(small, x, call=write), ["buffers"])

    @unittest.skipIf(not hasattr(torch, "func"), "this torch has no torch.func")
    def test_weights_that_a_call_is_given_are_not_looked_at(self):
        from oomtune.hook.apply.first_passes import FirstPasses

        module, told = torch.nn.Linear(4, 1), []
        passes, forward = FirstPasses(torch, lambda code, message: told.append(code)), module.forward
        module.forward = lambda x: passes.around(module, forward, x)

        def loss(weights, x):
            return torch.func.functional_call(module, weights, (x,)).sum()

        found = torch.func.vmap(torch.func.grad(loss), (None, 0))(dict(module.named_parameters()), torch.ones(3, 2, 4))
        self.assertEqual((found["weight"].tolist(), told), ([[[2.0] * 4]] * 3, []))

    def test_random_draws_are_not_told_where_nothing_is_cut(self):
        _, result = self.train(OOMTUNE_MICRO_BATCH=8, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation")
        self.assertEqual(result.of("warn"), [])

    MODELS = {
        "one sequence, cut into segments": (
            "nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),"
            " nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))"
        ),
        "repeated blocks": (
            "nn.Sequential(nn.Conv2d(3, 8, 3), *[nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)],"
            " nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))"
        ),
        "a checkpoint of the script's own": "Own(False)",
        "a checkpoint of the script's own, reentrant": "Own(True)",
    }
    MIXED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Own(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Conv2d(3, 8, 3)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        x = checkpoint(self.body, self.stem(x), use_reentrant=self.reentrant)
        return self.head(x.mean((2, 3)))
model = %s
norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
if isinstance(model, Own):
    for norm in norms: norm.momentum = 0.0  # a checkpoint of the script's own counts twice, with the hook and without
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 3, 12, 12), torch.randint(4, (16,)))
for x, y in DataLoader(data, batch_size=4):
    output = model(x)
    assert output.dtype == torch.float32
    optimizer.zero_grad(); nn.functional.cross_entropy(output, y).backward(); optimizer.step()
torch.save({name: value for name, value in model.state_dict().items() if "tracked" not in name}, "out.pt")
"""

    def test_checkpointing_and_autocast_together_are_autocast_alone(self):
        for name, model in self.MODELS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                weights = {}
                for knobs in ("", "amp", "checkpointing,amp"):
                    on = {
                        "OOMTUNE_AMP": "bf16" if "amp" in knobs else "off",
                        "OOMTUNE_CHECKPOINTING": int("check" in knobs),
                    }
                    result = run(self.MIXED % model, "apply", cwd=folder, OOMTUNE_HOOK_KNOBS=knobs, **on)
                    self.assertEqual(result.status, 0, result.errors)
                    weights[knobs] = torch.load(folder + "/out.pt")
                different = [key for key, value in weights["amp"].items() if not torch.equal(value, weights[""][key])]
                self.assertTrue(different, "autocast had no effect")
                for key, value in weights["amp"].items():
                    self.assertTrue(torch.equal(value, weights["checkpointing,amp"][key]), key)

    def assert_offloaded(self, name, **env):
        """A file stands in for the host's memory, which a machine without a GPU has no other of."""
        state = os.path.join(ROOT, "test", "fixtures", "worker", "state")
        end = "\nimport oomtune.hook.apply.host_copies as copies\nprint(copies.HostCopies.moved)\n"
        text = self.MIXED % self.MODELS[name] + end
        weights, moved = [], []
        for knobs in ("", "offload", "checkpointing,offload"):
            on = {"OOMTUNE_OFFLOAD": int("offload" in knobs), "OOMTUNE_CHECKPOINTING": int("check" in knobs)}
            on["OOMTUNE_HOOK_KNOBS"] = "micro_batch,accumulation," + knobs
            with tempfile.TemporaryDirectory() as folder:
                result = run(text, "apply", cwd=folder, beside=[state], STREAMED=1, **env, **on)
                self.assertEqual(result.status, 0, result.errors)
                weights.append(torch.load(folder + "/out.pt"))
            moved.append(int(result.output))
        self.assertEqual(moved[0], 0)
        self.assertTrue(moved[1] >= moved[2] > 0, moved)
        for other in weights[1:]:
            for key, value in weights[0].items():
                self.assertTrue(torch.equal(value, other[key]), key)

    def test_activations_that_stream_to_the_host_and_back_change_no_weight(self):
        """However few of them are under way at once."""
        state = os.path.join(ROOT, "test", "fixtures", "worker", "state")
        end = "\nimport oomtune.hook.apply.host_copies as copies\nprint(copies.HostCopies.moved)\n"
        for name, model in self.MODELS.items():
            for room in (1, 2**14):
                with self.subTest(name, room=room), tempfile.TemporaryDirectory() as folder:
                    weights, moved = [], []
                    for knobs in ("", "offload", "offload,offloaded_part", "checkpointing,offload"):
                        on = {
                            "OOMTUNE_OFFLOADED_PART": "0.4",
                            "OOMTUNE_OFFLOAD": int("offload" in knobs),
                            "OOMTUNE_CHECKPOINTING": int("check" in knobs),
                        }
                        on.update(OOMTUNE_HOOK_KNOBS=knobs, STREAMED=room)
                        result = run(self.MIXED % model + end, "apply", cwd=folder, beside=[state], **on)
                        self.assertEqual(result.status, 0, result.errors)
                        weights.append(torch.load(folder + "/out.pt"))
                        moved.append(int(result.output))
                    self.assertEqual(moved[0], 0)
                    self.assertTrue(moved[1] > moved[2] > 0, moved)
                    for other in weights[1:]:
                        for key, value in weights[0].items():
                            self.assertTrue(torch.equal(value, other[key]), key)

    def test_a_cut_call_has_the_same_knobs_in_its_recomputation(self):
        """What is kept for the backward pass is kept by the recomputation of each part: there it has to go to the host."""
        for name in ("repeated blocks", "a checkpoint of the script's own"):
            with self.subTest(name):
                self.assert_offloaded(name, OOMTUNE_MICRO_BATCH=2, OOMTUNE_ACCUMULATION=2, OOMTUNE_CUT="model")

    def test_autocast_after_checkpointing_is_autocast_and_checkpointing(self):
        """Rungs are tried in this order in one process."""
        rungs = [{}, {"checkpointing": True}, {"amp": "bf16"}, {"amp": "bf16", "checkpointing": True}]
        for name, model in self.MODELS.items():
            with self.subTest(name):
                answers = [probe(4, steps=2, **rung) for rung in rungs]
                result = run(self.MIXED % model, "probe", answers)
                self.assertEqual(result.status, 0, result.errors)
                self.assertEqual(len(result.of("measured")), 4, result.messages)
                self.assertFalse(any(m["own_amp"] for m in result.of("measured")))


if __name__ == "__main__":
    unittest.main()
