"""The cut at the model's call: the script's loop goes its own rounds, and ends at the weights of the uncut run."""

import gc
import unittest
import weakref
from unittest import mock

import torch
from cut_case import CutCase, mean_square, net, rows, tokens
from support import run
from torch import nn
from torch.utils.checkpoint import checkpoint

HEAD = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 8), torch.randn(2048, 4))
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(data, batch_size=512, shuffle=True)
rounds = steps = 0
def work(x, y):
    global rounds, steps
    assert len(x) == len(y) == 512
    rounds += 1
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    steps += 1
"""
TAIL = """
print(rounds, steps, len(loader), optimizer.param_groups[0]['lr'], *[repr(p.sum().item()) for p in model.parameters()])
"""

LOOPS = {
    "an iterator and a counter": """
it = iter(loader)
while steps < 40:
    try: x, y = next(it)
    except StopIteration:
        it = iter(loader)
        x, y = next(it)
    work(x, y)
""",
    "a break": """
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        if i == 3: break
        work(x, y)
""",
    "a range of steps": """
it = iter(loader)
for _ in range(4):
    work(*next(it))
""",
    "OneCycleLR sized by len(loader)": """
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, steps_per_epoch=len(loader), epochs=2)
for epoch in range(2):
    for x, y in loader:
        work(x, y)
        schedule.step()
""",
    "a contrastive loss of the batch": """
for x, y in loader:
    rounds += 1
    one = nn.functional.normalize(model(x), dim=1)
    two = nn.functional.normalize(model(x + 0.1 * y.repeat(1, 2)), dim=1)
    optimizer.zero_grad()
    nn.functional.cross_entropy(one @ two.t() / 0.1, torch.arange(len(x))).backward()
    optimizer.step()
    steps += 1
""",
    "an average of weights by hand": """
average = [p.detach().clone() for p in model.parameters()]
for x, y in loader:
    work(x, y)
    for kept, p in zip(average, model.parameters()): kept.lerp_(p.detach(), 0.1)
print(*[repr(p.sum().item()) for p in average])
""",
    "LBFGS": """
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for x, y in loader:
    rounds += 1
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
    steps += 1
""",
    "a model in evaluation mode, beside a validation": """
model = nn.Sequential(nn.BatchNorm1d(8), *model).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for x, y in loader:
        work(x, y)
    for x, y in DataLoader(data, batch_size=256):
        assert len(x) == 256
        nn.functional.mse_loss(model(x), y)
""",
    "gradients of an input alone, in a hook of the backward pass": """
for x, y in loader:
    rounds += 1
    made = model(x)
    start = made.detach().repeat(1, 2).requires_grad_()
    again = model(start)
    made.register_hook(lambda g: g + torch.autograd.grad(again, start, g, retain_graph=True)[0][:, :4])
    optimizer.zero_grad()
    nn.functional.mse_loss(made, y).backward()
    optimizer.step()
    steps += 1
""",
    "gradients of weights that a backward pass asks for and gives on": """
class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *weights):
        ctx.save_for_backward(x, *weights)
        with torch.no_grad():
            return model(x)
    @staticmethod
    def backward(ctx, gradient):
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            made = model(x)
        return (None, *torch.autograd.grad(made, weights, gradient))
for x, y in loader:
    rounds += 1
    optimizer.zero_grad()
    nn.functional.mse_loss(Recomputed.apply(x, *model.parameters()), y).backward()
    optimizer.step()
    steps += 1
""",
}


class Loops(unittest.TestCase):
    def figures(self, loop, **env):
        result = run(HEAD + loop + TAIL, "apply", **env)
        self.assertEqual(result.status, 0, result.errors)
        return [float(word) for word in result.output.split()], result

    def test_each_loop_ends_as_alone(self):
        for name, loop in LOOPS.items():
            with self.subTest(name):
                bare, _ = self.figures(loop)
                tuned, result = self.figures(
                    loop, OOMTUNE_MICRO_BATCH=128, OOMTUNE_ACCUMULATION=4, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation"
                )
                self.assertEqual(bare[:4], tuned[:4]) if name != "an average of weights by hand" else None
                for one, other in zip(bare, tuned):
                    self.assertAlmostEqual(one, other, delta=1e-9 * max(1e-3, abs(one)))
                self.assertEqual(result.one("cut")["cut"], "model")
                self.assertEqual(len(result.of("step")), len(self.steps(result)))
                self.assertNotIn("batch_norm", [message["code"] for message in result.of("warn")])

    def steps(self, result):
        return {message["n"] for message in result.of("step")}

    def test_what_cannot_be_cut_stops_and_names_the_option(self):
        loops = {
            "depends on the other samples": "class Mixing(nn.Sequential):\n"
            "    def forward(self, x):\n"
            "        x = super().forward(x)\n"
            "        return x - x.mean(0)\n"
            "model = Mixing(*model)\n",
            "neither a mean nor a sum": "class Inner(nn.Sequential):\n"
            "    def forward(self, x):\n"
            "        x = super().forward(x)\n"
            "        return nn.functional.cross_entropy(x @ x.t(), torch.arange(len(x))).expand(512, 4)[0, 0]\n"
            "model = Inner(*model)\n",
            "something besides its outputs": "model.register_forward_hook(lambda m, i, o: setattr(model, 'kept', o))\n",
        }
        for words, change in loops.items():
            with self.subTest(words):
                result = run(
                    HEAD + change + "for x, y in loader:\n    work(x, y)\nprint('trained')\n",
                    "apply",
                    OOMTUNE_MICRO_BATCH=128,
                    OOMTUNE_ACCUMULATION=4,
                    OOMTUNE_HOOK_KNOBS="micro_batch,accumulation",
                )
                self.assertEqual(result.status, 1, result.errors)
                self.assertNotIn("trained", result.output)
                self.assertIn(words, result.errors)
                self.assertIn("--cut loader", result.errors)
                compares = words == "neither a mean nor a sum"
                self.assertEqual("--cut loader cuts the loader's batches instead" in result.errors, not compares)
                self.assertEqual(result.one("goodbye")["reason"], "uncut")

    def test_what_was_cut_before_memory_ran_out_is_told(self):
        fails = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
        knobs = {
            "OOMTUNE_MICRO_BATCH": 128,
            "OOMTUNE_ACCUMULATION": 4,
            "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation",
        }
        for body, more, calls in (
            ("    for part in model.modules(): pass\n", knobs, []),
            ("    out = model(x)\n", knobs, ["Sequential"]),
            ("    model[0].forward = lambda x: fail()\n    model(x)\n", knobs, None),
            ("    out = model(x)\n", {}, None),
        ):
            loop = "def fail(): %sfor x, y in loader:\n%s    fail()\n" % (fails, body)
            told = run(HEAD + loop, "apply", **more).one("exception")
            self.assertEqual((told["oom"], told.get("cut_calls")), (True, calls), body)


COMPILED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
seen = []
def backend(graph, inputs):
    def call(*given):
        seen.extend({len(tensor) for tensor in given if tensor.shape[1:] == (8,) and tensor.shape[0] in (20, 80)})
        return graph(*given)
    return call
model = torch.compile(net, backend=backend)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(320, 8), torch.randn(320, 4)), batch_size=80):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print(*sorted(set(seen)), *[repr(p.sum().item()) for p in net.parameters()])
"""


class Compiled(unittest.TestCase):
    @unittest.skipUnless(hasattr(torch, "compile"), "this torch (%s) has no torch.compile" % torch.__version__)
    def test_micro_batches_go_into_the_compiled_module(self):
        knobs = {"OOMTUNE_MICRO_BATCH": 20, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        bare, tuned = run(COMPILED, "apply"), run(COMPILED, "apply", **knobs)
        self.assertEqual((bare.status, tuned.status), (0, 0), tuned.errors)
        one, other = bare.output.split(), tuned.output.split()
        self.assertEqual((one[0], other[0]), ("80", "20"))
        for a, b in zip(one[1:], other[1:]):
            self.assertAlmostEqual(float(a), float(b), delta=1e-9)


class Cases(CutCase):
    """Modules of all kinds, in this process: weights after three steps, uncut and cut."""

    def test_losses(self):
        def pairs(model, x):
            one, two = (nn.functional.normalize(z) for z in (model(x), model(x + 0.1)))
            return nn.functional.cross_entropy(one @ two.t() * 5, torch.arange(len(x)))

        self.same(net, lambda m, x: m(x).pow(2).mean(), rows)
        self.same(net, lambda m, x: m(x).pow(2).sum(), rows)
        self.same(net, pairs, rows)
        self.same(net, lambda m, x: m(torch.cat([x, -x])).pow(2).mean(), rows)
        torch.set_default_dtype(torch.float32)
        self.same(net, lambda m, x: m(x).pow(2).mean(), rows, tolerance=1e-5)

    def test_outputs_that_one_sample_alone_has_without_its_dimension(self):
        def penalty(model, x):
            x.requires_grad_()
            value = model(x)
            slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
            return (slope.norm(dim=1) - 1).pow(2).mean() + value.pow(2).mean()

        for width in (1, 4):
            for micro in (16, 1):
                for loss in (mean_square, penalty):
                    with self.subTest(width=width, micro=micro, loss=loss.__name__):
                        self.same(lambda width=width: Squeezed(width), loss, rows, micro=micro)
        self.same(lambda: Squeezed(1), mean_square, lambda: torch.randn(2, 8), micro=1, batch=2)
        # What one sample alone gives is another thing there: only the layers inside are cut.
        self.same(lambda: Squeezed(4, within=True), mean_square, rows, micro=1)

    def test_more_rows_than_before_where_there_are_as_many_features_as_samples(self):
        many = lambda: torch.randn(64, 64).repeat(8 if len(seen) < 2 else 64, 1)  # noqa: E731
        seen = []

        def loss(model, x):
            seen.append(len(x))
            return torch.tanh(model(x)).mean()

        def make():
            del seen[:]
            return nn.Linear(64, 8)

        self.same(make, loss, many)
        self.assertEqual(seen, [512, 512, 4096])

    def test_some_of_the_samples(self):
        self.same(net, lambda m, x: m(x[:50]).pow(2).mean() + m(x[:7]).pow(2).mean(), rows)

    def test_a_loss_of_the_module_itself(self):
        self.same(Text, lambda m, x: m(*x)[1], tokens)
        self.same(Text, lambda m, x: m(x[0], t=x[1])[1] + m(*x)[0].pow(2).mean(), tokens)
        # The label 0 is one like others here; in few rows more often than in the rest.
        some = lambda: (torch.randint(50, (64, 200)), torch.randint(50, (64, 200)))  # noqa: E731
        self.same(Text, lambda m, x: m(*x)[1], some)
        self.same(lambda: Inside("sum"), lambda m, x: m(x), rows)
        self.same(lambda: Inside("mean"), lambda m, x: m(x), rows)

    def test_a_loss_of_the_module_itself_needs_no_second_forward_pass(self):
        def calls(loss):
            ran = []

            class Counted(Text):
                def forward(self, i, t=None):
                    ran.append(len(i))
                    return super().forward(i, t)

            with self.without_looks():
                self.same(Counted, loss, tokens, steps=4)
            return ran[4:]  # past the uncut steps

        only = calls(lambda m, x: m(*x)[1] / 3)
        # The first step shows that the loss is all that is wanted: 4 forward passes, and again all but the last.
        self.assertEqual(only[-19:], [16] * 7 + [16] * 12)
        self.assertEqual(calls(lambda m, x: m(*x)[1] + m(*x)[0].pow(2).mean())[-7:], [16] * 7)
        self.assertEqual(calls(lambda m, x: m(*x)[1] * 2 + m(*x)[1])[-14:].count(16), 14)

    def test_a_loss_of_the_module_itself_that_is_used_otherwise_now_and_then(self):
        turn = []

        def loss(model, x):
            turn.append(1)
            logits, value = model(*x)
            if len(turn) % 4 == 1:
                return value + logits.pow(2).mean()
            if len(turn) % 4 == 2:
                model(*x)  # never asked for its gradients
            if len(turn) % 4 == 3:
                return torch.autograd.grad(value, model.head.weight, create_graph=True)[0].pow(2).sum() + value
            return value

        def made():
            del turn[:]
            return Text()

        self.same(made, loss, tokens, steps=9)

    def test_a_temperature_that_the_module_returns(self):
        def loss(model, inputs):
            text, image, scale = model(inputs[0])
            return nn.functional.cross_entropy(scale * text @ image.t(), torch.arange(len(text)))

        # Samples of different lengths: a mean over tokens weights the micro-batches differently.
        padded = lambda: (torch.randint(1, 50, (64, 20)) * (torch.arange(20) < torch.arange(64)[:, None] % 19 + 1),)  # noqa: E731
        self.same(Pairs, loss, padded)
        self.same(Pairs, lambda m, x: loss(m, x) + m(x[0])[2], padded)

    def test_a_value_that_was_the_same_for_all_samples_and_is_not_any_more(self):
        scales = []

        def made(figure):
            scales[:] = [0.01, 10, 10]
            return Bounded(figure)

        growing = lambda: torch.randn(64, 8) * scales.pop(0)  # noqa: E731
        self.refused(
            "now depends on its samples",
            lambda: made(nn.Identity()),
            lambda m, x: sum(each.mean() for each in m(x)),
            growing,
        )
        # A figure, which has no gradient, may change.
        self.same(lambda: made(torch.detach), lambda m, x: m(x)[0].mean(), growing)

    def test_gradients_are_added_to_those_of_another_batch(self):
        def twice(model, x):
            model(*x)[1].backward()
            return model(*tokens())[1]

        self.same(Text, twice, tokens, steps=4)

    def test_the_last_part_is_the_largest(self):
        from oomtune.hook.cut.batch_dims import split

        self.assertEqual(split(64, 16, False), [(0, 16), (16, 32), (32, 48), (48, 64)])
        self.assertEqual(split(80, 64, False), [(0, 16), (16, 80)])
        self.assertEqual(split(65, 64, False), [(0, 16), (16, 65)])
        self.assertEqual(split(80, 64, True), [(0, 40), (40, 80)])
        for count in range(2, 90):
            for most in range(1, count):
                for even in (True, False):
                    parts = split(count, most, even)
                    self.assertEqual([start for start, _ in parts[1:]], [stop for _, stop in parts[:-1]])
                    self.assertEqual((parts[0][0], parts[-1][1], len(parts)), (0, count, -(-count // most)))
                    self.assertTrue(all(0 < stop - start <= most for start, stop in parts), (count, most, parts))

    def test_sequences_with_time_first(self):
        self.same(Recurrent, lambda m, x: m(x).pow(2).mean(), lambda: torch.randn(12, 64, 8))
        # As many steps as samples: only running it shows which dimension is which.
        self.same(Recurrent, lambda m, x: m(x).pow(2).mean(), lambda: torch.randn(64, 64, 8))

    def test_spectral_normalisation_goes_one_step_a_call(self):
        self.same(lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 8)), nn.Tanh()), mean_square, rows)

    def test_computed_weights_that_are_kept_for_several_uses(self):
        def make():
            computed = nn.Linear(8, 8)
            nn.utils.parametrize.register_parametrization(computed, "weight", nn.Softplus())
            return nn.Sequential(nn.Linear(8, 8), computed)

        def twice(model, x):
            with nn.utils.parametrize.cached():
                return mean_square(model, x) + mean_square(model, x + 1) + model[1].weight.pow(4).sum()

        def at_once(model, x):
            with nn.utils.parametrize.cached():
                loss = twice(model, x)
                loss.backward()
                return loss.detach().requires_grad_()

        self.same(make, twice, rows)
        self.same(make, at_once, rows)
        self.assertEqual(nn.utils.parametrize._cache, {})

    def test_computed_weights_that_each_call_would_compute_anew_are_not_kept(self):
        def make():
            return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Tanh())

        def kept(model, x):
            with nn.utils.parametrize.cached():
                return mean_square(model, x) + mean_square(model, x + 1)

        self.same(make, mean_square, rows)
        self.refused("without cached\\(\\)", make, kept, rows)

    def test_parts_that_are_called_one_by_one(self):
        self.same(net, lambda m, x: m[2](m[1](m[0](x))).pow(2).mean(), rows)

    def test_hooks_on_parameters_run_once(self):
        calls = []

        def hooked():
            model = net()
            model[0].weight.register_hook(lambda gradient: calls.append(1) or 2 * gradient)
            return model

        self.same(hooked, mean_square, rows)
        self.assertEqual(len(calls), 6)

    def test_gradients_of_inputs(self):
        seen = []

        def loss(model, x):
            x.requires_grad_()
            value = model(x).pow(2).mean()
            seen.append(torch.autograd.grad(value, x, retain_graph=True)[0])
            return value

        self.same(net, loss, rows)
        for one, other in zip(seen[:3], seen[3:]):
            self.assertLess((one - other).norm() / one.norm(), 1e-9)

    @unittest.skipIf(
        not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"),
        "torch before 2.1 does not tell whether a graph is kept",
    )
    def test_a_batch_is_free_once_its_backward_pass_is_over(self):
        for keeps in (False, True):
            with self.subTest(keeps=keeps):
                model, x = net(), rows()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                self.cut.engage(16, 64)
                model(x).sum().backward()
                optimizer.step()
                self.cut.stepped()
                x = rows()
                batch = weakref.ref(x)
                loss = model(x).pow(2).mean()
                del x
                loss.backward(retain_graph=keeps)
                self.assertEqual(batch() is not None, keeps)
                if keeps:
                    loss.backward()
                with self.assertRaisesRegex(RuntimeError, "a second time"):
                    loss.backward()
                optimizer.step()
                self.cut.release()

    def test_no_batch_waits_for_garbage_to_be_collected(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        seen = []
        for micro in (16, 8, 4):
            self.cut.engage(micro, 64)
            for _ in range(2):
                x = rows()
                seen.append(weakref.ref(x))
                loss = model(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                self.cut.stepped()
            self.assertEqual([batch() is None for batch in seen[:-1]], [True] * (len(seen) - 1))
            del x, loss

    def test_outputs_that_each_have_a_backward_pass_of_their_own(self):
        def loss(model, x):
            one, two = model(x)
            one.pow(2).mean().backward()
            return two.pow(2).mean()

        self.same(TwoHeads, loss, rows)

    def test_second_derivatives(self):
        def penalty(model, x):
            x.requires_grad_()
            slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
            return (slope.norm(dim=1) - 1).pow(2).mean() + model(x).mean()

        self.same(net, penalty, rows)

    @unittest.skipUnless(hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), "this torch has no such hooks")
    def test_an_optimizer_that_steps_in_the_backward_pass_never_has_all_gradients_at_once(self):
        def step(weight):
            weight.data.add_(weight.grad, alpha=-0.1)
            weight.grad = None

        def make():
            model = net()
            for weight in model.parameters():
                weight.register_post_accumulate_grad_hook(step)
            return model

        with mock.patch("oomtune.hook.cut.equivalence.GradientCheck") as check:
            self.same(make, mean_square, rows)
        check.assert_not_called()

    def test_third_derivatives(self):
        def residual(model, x):
            x.requires_grad_()
            value = model(x)
            slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
            bend = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)[0]
            other = model(x[:, :8] + 1)
            return (slope[:, 1] + value[:, 0] * slope[:, 0] - bend[:, 0]).pow(2).mean() + other.pow(2).mean()

        self.same(net, residual, rows)

    def test_derivatives_of_gradients_of_weights(self):
        def penalty(model, x):
            value = model(x).pow(2).mean()
            slopes = torch.autograd.grad(value, list(model.parameters()), create_graph=True)
            return value + sum(slope.pow(2).sum() for slope in slopes)

        self.same(net, penalty, rows)

    def test_gradients_that_are_differentiated_again_hold_one_micro_batch_at_a_time(self):
        def residual(model, x):
            x.requires_grad_()
            slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
            bend = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)[0]
            return (slope[:, 1] - bend[:, 0]).pow(2).mean()

        HeldGraph.most = 0
        self.train(HeldGraph, residual, rows, 4)
        self.assertLessEqual(HeldGraph.most, 2)

    def test_gradients_that_are_differentiated_again_draw_the_same(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4))
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        x = rows().requires_grad_()
        self.cut.engage(16, 64)
        value = model(x).pow(2).sum()
        slope = torch.autograd.grad(value, x, retain_graph=True)[0]
        again = torch.autograd.grad(value, x, create_graph=True)[0]
        before = torch.get_rng_state()
        again.pow(2).sum().backward()
        self.assertEqual((self.cut.count, len(kept.state)), (1, 0))
        self.assertTrue(torch.equal(slope, again))
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_reentrant_checkpointing_inside(self):
        self.same(lambda: Checkpointed(True), mean_square, rows)
        self.same(lambda: Checkpointed(False), mean_square, rows)

    def test_dropout_draws_the_same_again(self):
        make = lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))  # noqa: E731
        self.cut.release()
        torch.manual_seed(0)
        model = make()
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        x = rows()
        self.cut.engage(16, 64)
        torch.manual_seed(5)
        nn.functional.mse_loss(model(x), x[:, :4]).backward()
        self.assertEqual((self.cut.count, len(kept.state)), (1, 0))
        cut = [parameter.grad.clone() for parameter in model.parameters()]
        after = torch.get_rng_state()
        self.cut.release()
        for parameter in model.parameters():
            parameter.grad = None
        # The same by hand: one autograd run over the four micro-batches in their order.
        torch.manual_seed(5)
        output = torch.cat([model(part) for part in x.split(16)])
        self.assertTrue(torch.equal(after, torch.get_rng_state()))
        nn.functional.mse_loss(output, x[:, :4]).backward()
        for one, parameter in zip(cut, model.parameters()):
            self.assertLess((one - parameter.grad).norm() / parameter.grad.norm(), 1e-12)

    def test_running_statistics_count_each_micro_batch_once(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        before, x = {name: value.clone() for name, value in model.state_dict().items()}, rows()
        self.cut.engage(16, 64)
        model(x).mean().backward()
        self.cut.release()
        self.assertEqual((self.cut.count, len(kept.state)), (1, 0))
        cut = {name: value.clone() for name, value in model.named_buffers()}
        model.load_state_dict(before)
        for part in x.split(16):
            model(part)
        for name, value in model.named_buffers():
            self.assertTrue(torch.equal(value, cut[name]), name)

    def test_running_statistics_are_the_modules_own_after_each_step(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
        kept = torch.optim.SGD(model.parameters(), lr=0.0)
        own = dict(model.named_buffers())
        self.cut.engage(16, 64)
        for step in range(1, 4):
            model(rows()).mean().backward()
            for name, value in model.named_buffers():
                self.assertIs(value, own[name])
            self.assertEqual((int(model[1].num_batches_tracked), len(kept.state)), (4 * step, 0))

    def test_autocast(self):
        torch.set_default_dtype(torch.float32)

        def loss(model, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(x)
            return output.float().pow(2).mean()

        self.same(net, loss, rows, tolerance=2e-2)

        def inside(model, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(*x)[1]

        self.same(Text, inside, tokens, tolerance=2e-2, steps=4)

    def test_autocast_and_a_loss_with_weights_of_its_own(self):
        torch.set_default_dtype(torch.float32)

        def loss(model, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model["loss"](model["net"](x))

        make = lambda: nn.ModuleDict({"net": net(), "loss": Inner(width=4)})  # noqa: E731
        self.same(make, loss, rows, tolerance=2e-2)
        torch.manual_seed(0)
        first, tuned = make(), self.train(make, loss, rows, 16)
        self.assertTrue(all((one - two).norm() > 0 for one, two in zip(first.parameters(), tuned)))

    def test_what_cannot_be_shown_right_is_refused(self):
        self.refused("depends on the other samples", Mixing, mean_square, rows)
        self.refused("besides its outputs", Leaving, lambda m, x: m(x).mean() + m.aux, rows)
        self.refused("neither a mean nor a sum", Inner, lambda m, x: m(x), rows)
        self.refused("row for each", Recurrent, lambda m, x: m(x.view(8, 8, 8)).mean(), rows)

    def test_gradients_that_only_a_backward_pass_makes_of_all_samples(self):
        for make in (lambda: Adding("loss"), lambda: Adding("weights"), Clipping, hooked):
            self.refused("its gradients of a part of the samples are not", make, mean_square, rows)
        self.refused("its gradients of a part", lambda: Adding("loss", reentrant=True), mean_square, rows)
        self.refused("its gradients of a part", DividedByItself, lambda model, x: model(x, x[:, 0] > 0), rows)
        self.same(lambda: Adding("sum"), mean_square, rows)
        self.same(Reversed, mean_square, rows)
        self.same(lambda: nn.Sequential(Wide(), Adding("loss", 4)), mean_square, rows)

    def test_looks_at_gradients_leave_nothing(self):
        def make():
            model = net()
            for parameter in model.parameters():
                parameter.register_hook(called.append)
            model[0].register_full_backward_hook(lambda module, given, of_outputs: called.append(module))
            return model

        called = []
        model, x = make(), rows()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(16, 64)
        found = model(x)
        self.assertEqual(called, [])
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))
        optimizer.zero_grad()
        found.mean().backward()

    def test_a_loss_with_weights_of_its_own_is_run_whole(self):
        def make():
            return nn.ModuleDict({"net": net(), "loss": Inner(width=4)})

        self.same(make, lambda m, x: m["loss"](m["net"](x)), rows)
        self.assertEqual(self.warned, ["uncut"])

    def test_modules_that_write_to_their_weights_are_refused(self):
        for name, make in (
            ("FirstBatch.scale", lambda: FirstBatch("buffer")),
            ("FirstBatch.scale", lambda: FirstBatch("attribute")),
            ("Linear.(weight|bias)", lambda: Follower(True)),
            ("Linear.weight", lambda: Follower(False)),
            ("Linear.weight", lambda: Follower(False, alike=True)),
        ):
            # (as it would for each micro-batch of the loader, too)
            words = r"writes to its weights \(%s\), .* \(nor would --cut loader train the same\)$" % name
            self.refused(words, make, mean_square, rows)
        self.refused("writes to an input", InPlace, mean_square, rows)

    def test_a_module_that_replaces_its_weights_is_refused_and_keeps_them(self):
        # As the codes of some VQ-VAEs, which follow the averages of a batch; not in evaluation mode.
        class Codes(nn.Module):
            def __init__(self):
                super().__init__()
                self.codes = nn.Parameter(torch.randn(8))

            def forward(self, x):
                if self.training:
                    self.codes = nn.Parameter(0.9 * self.codes + 0.1 * x.mean(0))
                return x * self.codes

        made = []

        def make():
            model = nn.Sequential(nn.Linear(8, 8), Codes())
            made[:] = model[1], model[1].codes
            return model

        words = r"replaces its weights \(Codes.codes\), .* \(nor would --cut loader train the same\)$"
        self.refused(words, make, mean_square, rows)
        self.assertIs(made[0].codes, made[1])

    def test_a_queue_of_whole_batches_and_an_encoder_that_follows(self):
        self.same(Queue, lambda model, x: model(x), rows)

    def test_a_norm_of_weights_that_is_held(self):
        self.same(HeldNorm, mean_square, rows)

    def test_weights_that_a_call_is_given(self):
        if not hasattr(torch, "func"):
            self.skipTest("this torch (%s) has no torch.func" % torch.__version__)

        def inner(model, x):
            weights = dict(model.named_parameters())
            value = torch.func.functional_call(model, weights, (x,)).pow(2).mean()
            slopes = torch.autograd.grad(value, list(weights.values()), create_graph=True)
            weights = {name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes)}
            return torch.func.functional_call(model, weights, (x,)).pow(2).mean()

        self.same(net, inner, rows)

    def test_a_call_within_a_transform(self):
        if not hasattr(torch, "func"):
            self.skipTest("this torch (%s) has no torch.func" % torch.__version__)

        def given(model, x):
            grad = torch.func.grad(lambda weights: torch.func.functional_call(model, weights, (x,)).pow(2).mean())
            return sum(
                (slope * weight).sum()
                for slope, weight in zip(grad(dict(model.named_parameters())).values(), model.parameters())
            )

        self.refused("called within torch.func", net, given, rows)

        def penalty(model, x):
            with torch.no_grad():
                slopes = torch.func.grad(lambda x: model(x).sum())(x)
            per_sample = torch.func.vmap(lambda row: model(row[None]).sum())(x)
            return model(x).pow(2).mean() + per_sample.mean() + slopes.mean()

        self.same(net, penalty, rows)

    def test_a_call_whose_inputs_have_tangents(self):
        forward_mode = torch.autograd.forward_ad

        def tangent(model, x):
            with forward_mode.dual_level():
                made = forward_mode.unpack_dual(model(forward_mode.make_dual(x, torch.ones_like(x))))
                return made.primal.pow(2).mean() + made.tangent.pow(2).mean()

        self.refused("in forward mode", net, tangent, rows)
        self.same(net, lambda model, x: tangent(model, x) + mean_square(model, x + 1), rows)

    def test_word_vectors_next_to_nothing(self):
        def words():
            given = torch.randint(0, 50, (64, 1)), torch.randint(0, 50, (64, 6))
            given[1][0, 0] = 0
            return given

        self.same(WordVectors, lambda model, x: model(*x), words)

    def test_sparse_gradients_have_each_row_once(self):
        def words():
            return torch.randint(0, 50, (64, 1)), torch.randint(0, 50, (64, 6))

        self.same(lambda: WordVectors(True), lambda model, x: model(*x), words)
        model = WordVectors(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(4, 64)
        for _ in range(2):  # by the second one the module is known to make its loss itself
            optimizer.zero_grad()
            model(*words()).backward()
            self.assertLessEqual(model.words.weight.grad._nnz(), 50)

    def test_states_of_generators_are_kept_once(self):
        from oomtune.hook.watch.rng_state import HostRngState

        one = HostRngState(torch)
        same = HostRngState(torch, one)
        torch.rand(1)
        other = HostRngState(torch, same)
        self.assertTrue(same._torchs is one._torchs and same._pythons is other._pythons is one._pythons)
        self.assertFalse(other == one)

    def test_a_scripted_module(self):
        self.same(lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.Tanh())), mean_square, rows)

    def test_weights_that_changed_before_the_backward_pass(self):
        torch.manual_seed(0)
        model, x = net(), rows()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(16, 64)
        model(x).mean().backward()
        kept = model(x).mean()
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            kept.backward()


class AddedLoss(torch.autograd.Function):
    """Returns what it is given, and adds a loss in the backward pass, as those of mixtures of experts do."""

    @staticmethod
    def forward(ctx, x, loss):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.ones((), dtype=gradient.dtype)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -0.3 * gradient


class Adding(nn.Module):
    def __init__(self, kind, width=8, reentrant=False):
        super().__init__()
        self.gate, self.head, self.kind, self.reentrant = nn.Linear(width, 16), nn.Linear(16, 4), kind, reentrant

    def forward(self, x):
        if self.reentrant:
            x.requires_grad_()
            return checkpoint(self.inner, x, use_reentrant=True)
        return self.inner(x)

    def inner(self, x):
        shares = self.gate(x).softmax(1)
        losses = {
            "loss": lambda: shares.mean(0).square().sum(),
            "weights": lambda: self.gate.weight.square().sum(),
            "sum": lambda: shares.square().sum() / 64,
        }
        return AddedLoss.apply(self.head(shares), 1e-3 * losses[self.kind]())


class Clipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = net(), nn.Linear(4, 64)

    def forward(self, x):
        found = self.body(x)
        if found.requires_grad:
            found.register_hook(lambda gradient: gradient * (1e-3 / gradient.norm()).clamp(max=1))
        return self.head(found)


class DividedByItself(nn.Module):
    """Its loss is 1 whatever the samples are."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)

    def forward(self, x, marks):
        loss = self.net(x).pow(2).mean() + marks.sum() * 0
        return loss / loss.detach()


class Reversed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = net(), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(Reverse.apply(self.body(x)))


class Wide(nn.Module):
    """A model that has nearly all weights of what it is in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 4))

    def forward(self, x):
        return self.layers(x)


def hooked():
    model = net()
    model[1].register_full_backward_hook(lambda module, given, of_outputs: (given[0] / given[0].norm(),))
    return model


class Text(nn.Module):
    """As minGPT and its like: logits, and a mean over the tokens that count."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, i, t=None):
        logits = self.head(self.embedding(i))
        return logits, nn.functional.cross_entropy(logits.view(-1, 50), t.view(-1), ignore_index=-1)


class Pairs(nn.Module):
    """As CLIP and its like: an embedding of each sample from either side, and what the loss multiplies them by."""

    def __init__(self):
        super().__init__()
        self.embedding, self.text, self.image = nn.Embedding(50, 8, padding_idx=0), nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, i):
        mean = self.embedding(i).sum(1) / (i != 0).sum(1, keepdim=True)
        return self.text(mean), self.image(mean), self.scale.exp()


class FirstBatch(nn.Module):
    """Is initialised from its first batch, as activation normalisation is."""

    def __init__(self, kept):
        super().__init__()
        self.net, self.scale = net(), nn.Parameter(torch.ones(8))
        if kept == "buffer":
            self.register_buffer("ready", torch.tensor(False))
        else:
            self.ready = False

    def forward(self, x):
        if not self.ready:
            self.scale.data.copy_(1 / x.std(0))
            if isinstance(self.ready, bool):
                self.ready = True
            else:
                self.ready.fill_(True)
        return self.net(x * self.scale)


class Follower(nn.Module):
    """Weights that follow others in each forward pass, as those of a momentum encoder do."""

    def __init__(self, anew, alike=False):
        super().__init__()
        self.leading, self.following, self.anew = nn.Linear(8, 4), nn.Linear(8, 4), anew
        if alike:
            self.following.load_state_dict(self.leading.state_dict())
        for weight in self.following.parameters():
            weight.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            for leads, follows in zip(self.leading.parameters(), self.following.parameters()):
                if self.anew:
                    follows.data = follows.data * 0.9 + leads.data * 0.1
                else:
                    follows.data.mul_(0.9).add_(leads.data, alpha=0.1)
        return self.leading(x) * self.following(x)


class Queue(nn.Module):
    """As MoCo is."""

    def __init__(self):
        super().__init__()
        self.leading, self.following = net(), net()
        self.following.load_state_dict(self.leading.state_dict())
        self.following.requires_grad_(False)
        self.register_buffer("queue", torch.randn(128, 4))
        self.begin = 0

    def forward(self, x):
        with torch.no_grad():
            for leads, follows in zip(self.leading.parameters(), self.following.parameters()):
                follows.data = follows.data * 0.9 + leads.data * 0.1
            keys = self.following(x.flip(1))
        found = self.leading(x)
        logits = torch.cat([(found * keys).sum(1, keepdim=True), found @ self.queue.clone().t()], dim=1)
        assert len(self.queue) % len(x) == 0
        self.queue[self.begin : self.begin + len(x)] = keys
        self.begin = (self.begin + len(x)) % len(self.queue)
        return nn.functional.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        x.add_(1)
        return self.net(x)


class HeldNorm(nn.Linear):
    """As EEGNet's layers do."""

    def __init__(self):
        super().__init__(8, 4)

    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.1)
        return super().forward(x)


class WordVectors(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.words = nn.Embedding(50, 8, sparse=sparse)
        nn.init.uniform_(self.words.weight, -1e-3, 1e-3)

    def forward(self, centre, others):
        return -nn.functional.logsigmoid((self.words(centre) * self.words(others)).sum(2)).sum(1).mean()


class HeldGraph(nn.Module):
    """Counts of how many forward passes the graph is in memory at a time."""

    most = alive = 0

    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = HeldGraph.Held()
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.clone()

    class Held:
        def __init__(self):
            HeldGraph.alive += 1
            HeldGraph.most = max(HeldGraph.most, HeldGraph.alive)

        def __del__(self):
            HeldGraph.alive -= 1

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(self.Passed.apply(x))


class TwoHeads(nn.Module):
    """Two outputs with nothing in common but the input."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.one(x), self.two(x)


class Bounded(nn.Module):
    def __init__(self, figure):
        super().__init__()
        self.layer, self.figure = nn.Linear(8, 8), figure

    def forward(self, x):
        y = self.layer(x)
        return y, self.figure(y.abs().mean().clamp(min=1.0))


class Inside(nn.Module):
    def __init__(self, reduction):
        super().__init__()
        self.layer, self.reduction = nn.Linear(8, 8), reduction

    def forward(self, x):
        return nn.functional.mse_loss(self.layer(x), x, reduction=self.reduction) / 64


class Squeezed(nn.Module):
    """What binary classifiers do with their logits. `within`: before something that takes another dimension for the features then."""

    def __init__(self, width, within=False):
        super().__init__()
        self.net, self.width, self.within = (
            nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4 * width)),
            width,
            within,
        )

    def forward(self, x):
        found = self.net(x).unflatten(1, (4, self.width)).squeeze()
        return (
            found.softmax(1)
            if self.within
            else found[..., :1, :].squeeze()
            if self.width > 1
            else found[..., 0].squeeze()
        )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0])


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.net, self.reentrant = nn.Linear(8, 8), net(), reentrant

    def forward(self, x):
        return checkpoint(self.net, self.first(x), use_reentrant=self.reentrant)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        return x - x.mean(0)


class Leaving(Mixing):
    def forward(self, x):
        x = self.layer(x)
        self.aux = x.pow(2).mean()
        return x


class Inner(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, 8)

    def forward(self, x):
        z = self.layer(x)
        return nn.functional.cross_entropy(z @ z.t(), torch.arange(len(x)))


if __name__ == "__main__":
    unittest.main()
