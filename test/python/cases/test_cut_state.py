"""Modules that keep something from one call to the next."""

import collections
import functools
import unittest

import torch
from cut_case import CutCase, mean_square, net, rows
from torch import nn

try:
    import numpy
except ImportError:
    numpy = None


class Stateful(nn.Module):
    def __init__(self, state=None):
        super().__init__()
        self.layer, self.state = nn.LSTM(8, 4), state

    def forward(self, x):
        output, state = self.layer(x, self.state)
        self.state = tuple(each.detach() for each in state)
        return output


class Annealed(nn.Module):
    """Divides by a temperature that goes down with each call."""

    def __init__(self):
        super().__init__()
        self.layer, self.temperature = nn.Linear(8, 4), 1.0

    def forward(self, x):
        self.temperature *= 0.9
        return self.layer(x) / self.temperature


class Caching(nn.Module):
    """Keeps a mask of its first call, what it computed last, and how often it was called."""

    def __init__(self):
        super().__init__()
        self.net, self.mask, self.calls = net(), None, 0

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones(8)
        self.calls += 1
        x = self.net(x * self.mask)
        self.seen = x.detach()
        return x


class Quantised(nn.Module):
    """Its weights are whole numbers in a buffer. `counts`: it writes to another one as large."""

    def __init__(self, counts=False):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (8, 1 << 18), dtype=torch.uint8))
        self.register_buffer("seen", torch.zeros(1 << 18, dtype=torch.int64))
        self.net, self.counts = net(), counts

    def forward(self, x):
        if self.counts:
            self.seen[0] += len(x)
        return self.net(x) * self.packed[:, 0].sum()


class Rooted(nn.Module):
    """Keeps what torch cannot compare or copy: the matrix of a graph, tensors of 8 bits, a layer that is never called and has no shape."""

    def __init__(self, writes=None):
        super().__init__()
        self.net, self.writes = net(), writes
        self.unused = nn.ModuleList([nn.LazyLinear(4), nn.LazyBatchNorm1d()])
        self.waiting = [nn.LazyLinear(4).weight]
        self.register_buffer("graph", torch.eye(8).to_sparse())
        self.register_buffer("lengths", torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]))
        self.register_buffer(
            "steps", torch.quantize_per_tensor(torch.ones(8, dtype=torch.float32), 0.1, 0, torch.qint8)
        )
        self.fixed = nn.Parameter(torch.eye(8).to_sparse(), requires_grad=False)
        small = getattr(torch, "float8_e4m3fn", torch.float64)
        self.register_buffer("table", torch.randn(8).to(small))
        self.weight = nn.Parameter(torch.randn(8).to(small), requires_grad=False)

    def forward(self, x):
        if self.writes == "graph":
            self.graph.mul_(2)
        elif self.writes == "weight":
            self.weight.data.copy_(x.mean(0))
        x = torch.sparse.mm(self.graph, torch.sparse.mm(self.fixed, x.t())).t()
        return self.net(x * (self.weight.float().sum() + self.table.float() + self.steps.dequantize()))


class OwnLazy(nn.Module):
    """Makes its weight in its first call, without torch's lazy layers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def forward(self, x):
        if nn.parameter.is_lazy(self.weight):
            self.weight.materialize((x.shape[1], 4))
            nn.init.normal_(self.weight)
        return x @ self.weight


def lazy():
    first = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(12))
    return nn.Sequential(first, nn.Tanh(), OwnLazy())


def loaded():
    """Its layer has its weights, and waits for its first call all the same."""
    model = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.Linear(16, 4))
    model.load_state_dict(net().state_dict())
    return model


def called():
    model = lazy()
    with torch.no_grad():
        model(rows()[:1])
    return model


class Copies:
    """Bytes of the largest copy of a tensor that is made meanwhile."""

    def __init__(self):
        self.most, self.clone = 0, torch.Tensor.clone

    def __enter__(self):
        def clone(tensor, **how):
            self.most = max(self.most, tensor.numel() * tensor.element_size())
            return self.clone(tensor, **how)

        torch.Tensor.clone = clone
        return self

    def __exit__(self, *error):
        torch.Tensor.clone = self.clone


def steps():
    return torch.randn(12, 64, 8)


class PerSample(nn.Module):
    """Keeps each sample's gradient on its weight, as private training does: with `told`, in a place that is there already."""

    def __init__(self, told):
        super().__init__()
        self.layer = nn.Linear(8, 4, bias=False)
        if told:
            self.layer.weight.grad_sample = None
        self.layer.register_forward_hook(self.keep)
        self.layer.register_full_backward_hook(self.write)

    def keep(self, layer, args, output):
        if torch.is_grad_enabled():
            layer.given = args[0].detach()

    def write(self, layer, inputs, outputs):
        layer.weight.grad_sample = torch.einsum("no,ni->noi", outputs[0] * len(outputs[0]), layer.given)

    def forward(self, x):
        return self.layer(x)


class Watching(PerSample):
    """Its hook looks only."""

    def write(self, layer, inputs, outputs):
        self.seen = len(outputs[0])


class Statistics(nn.Module):
    """A hook of the script's gathers what goes into its first layer, as preconditioners do: in a variable around it, in an object, or
    in what it is given with each call."""

    def __init__(self, place):
        super().__init__()
        self.net, self.gathered, self.calls = net(), {}, [0]
        hook = {"variable": self.around(), "object": self.gather, "argument": functools.partial(put, self.gathered)}
        self.net[0].register_forward_pre_hook(hook[place])

    def around(self):
        gathered, calls = self.gathered, self.calls

        def hook(layer, args):
            gathered[layer] = args[0].t() @ args[0] / len(args[0])
            calls[0] += 1

        return hook

    def gather(self, layer, args):
        put(self.gathered, layer, args)

    def forward(self, x):
        return self.net(x)


def put(gathered, layer, args):
    gathered.setdefault(layer, []).append(args[0].mean())


class Counted(nn.Module):
    """Its loss goes by how often it was called, which it counts for others."""

    def __init__(self):
        super().__init__()
        self.net, self.count = net(), 0

    def forward(self, x):
        self.count += 1
        return self.net(x)


class Meter:
    """`inner`: notes in an object, in that one's list and in a tensor there."""

    def __init__(self, inner=None):
        self.total, self.calls, self.inner, self.seen, self.mean = 0.0, 0, inner, [], torch.zeros(1)

    def update(self, value, count):
        self.total += value * count
        self.calls += 1
        self.seen.append(count)
        self.mean.mul_(0.9).add_(value)
        if self.inner is not None:
            self.inner.update(value, count)


class Metering(nn.Module):
    """Notes its calls in `place`, which is no attribute of it that is bound anew."""

    def __init__(self, place, note):
        super().__init__()
        self.net, self.place, self.note = net(), place, note

    def forward(self, x):
        found = self.net(x)
        self.note(self.place, found.pow(2).mean().item(), len(x))
        return found


class Cooling:
    def __init__(self):
        self.value, self.own = 1.0, self

    def step(self):
        self.value *= 0.9
        return self.value


class Cooled(nn.Module):
    """Divides by a temperature that an object of its own lowers with each call."""

    def __init__(self):
        super().__init__()
        self.layer, self.schedule = nn.Linear(8, 4), Cooling()

    def forward(self, x):
        return self.layer(x) / self.schedule.step()


class Tempered(nn.Module):
    """A setting of its own says what it returns."""

    def __init__(self):
        super().__init__()
        self.net, self.temperature = net(), 1.0

    def forward(self, x):
        return self.net(x) * self.temperature


class Recording(nn.Module):
    """Adds hooks to its modules at its first call, and notes that it has, as transformers' models do."""

    def __init__(self):
        super().__init__()
        self.net, self.outputs, self.hooked = net(), None, False

    def forward(self, x):
        if not self.hooked:
            for layer in self.net:
                layer.register_forward_hook(self.record)
            self.hooked = True
        self.outputs = []
        found, outputs = self.net(x), self.outputs
        self.outputs = None
        return found, tuple(outputs)

    def record(self, module, given, output):
        if self.outputs is not None:
            self.outputs.append(output)


class LargeBuffers(CutCase):
    def test_quantised_weights_are_not_copied(self):
        with Copies() as copies:
            self.same(Quantised, mean_square, rows, tolerance=1e-6)
        self.assertLess(copies.most, 1 << 20)

    def test_one_that_is_written_to_is_refused(self):
        words = (
            r"its forward pass changes a buffer of 2 MiB \(Quantised.seen\) \(nor would --cut loader train the same\)$"
        )
        self.refused(words, lambda: Quantised(counts=True), mean_square, rows)

    def test_one_that_is_written_to_leaves_all_else_as_it_was(self):
        from oomtune.hook.cut.refusal import Uncuttable
        from oomtune.hook.cut.sandbox import Sandbox

        model = Quantised(counts=True)
        model.register_buffer("later", torch.zeros(1))
        random = torch.get_rng_state()
        with self.assertRaises(Uncuttable), Sandbox(torch, model, [], False).entered(True, False):
            model(rows())
            model.later += 1
        self.assertEqual((model.later.item(), model.training), (0, True))
        self.assertTrue(torch.equal(torch.get_rng_state(), random))


class OddTensors(CutCase):
    def test_tensors_that_cannot_be_copied_or_compared(self):
        self.same(Rooted, mean_square, rows, tolerance=1e-6)

    def test_those_that_are_written_to_are_refused(self):
        for name, words in (
            ("graph", r"its forward pass changes a sparse, nested or quantised buffer \(Rooted.graph\)"),
            ("weight", r"its forward pass writes to its weights \(Rooted.weight\)"),
        ):
            with self.subTest(name=name):
                self.refused(words, lambda name=name: Rooted(name), mean_square, rows)


class LazyLayers(CutCase):
    """They wait for their first call to know their shape."""

    def test_they_are_refused_with_the_remedy(self):
        words = r" waits for its first call to know its shape \(called once before the training, on a sample and under torch.no_grad\(\)"
        self.refused("LazyLinear" + words, lazy, mean_square, rows)
        self.refused("LazyLinear" + words, loaded, mean_square, rows)
        self.refused("OwnLazy" + words, lambda: nn.Sequential(nn.Linear(8, 4), OwnLazy()), mean_square, rows)

    def test_the_remedy_helps(self):
        self.same(called, mean_square, rows)

    def test_beside_the_trained_model_they_are_as_without_a_cut(self):
        made = []

        def lazily(model, x):
            return (model(x) - made[-1](x).detach()).pow(2).mean()

        weights = []
        for part in (None, 16):
            torch.manual_seed(3)
            made.append(nn.Sequential(nn.LazyLinear(4), nn.Tanh()))
            self.train(net, lazily, rows, *([] if part is None else [part]))
            self.assertEqual([type(each) for each in made[-1]], [nn.Linear, nn.Tanh])
            weights.append(made[-1][0].weight.detach().clone())
        self.assertTrue(torch.equal(*weights))


class State(CutCase):
    def test_a_state_that_is_made_by_the_first_call(self):
        self.refused(
            r"from one call to the next \(state\): handed to the call .* \(nor would --cut loader",
            Stateful,
            mean_square,
            steps,
        )

    def test_a_state_with_a_row_for_each_sample(self):
        make = lambda: Stateful((torch.zeros(1, 64, 4), torch.zeros(1, 64, 4)))  # noqa: E731
        self.refused("and state, which it keeps, may have a row for each sample", make, mean_square, steps)

    def test_a_number_that_goes_down_with_each_call(self):
        self.refused(r"from one call to the next \(temperature\)", Annealed, mean_square, lambda: torch.randn(64, 8))

    def test_a_setting_that_is_changed_before_the_backward_pass(self):
        def around(model, x):
            model.temperature = 2.0
            found = model(x)
            model.temperature = 1.0
            return found.pow(2).mean()

        def two(model, x):
            model.temperature = 2.0
            one = model(x)
            model.temperature = 0.5
            return one.pow(2).mean() + model(x).pow(2).mean()

        for loss in (around, two):
            self.refused("does not return what it did in the forward pass: something that it", Tempered, loss, rows)

    def test_a_setting_that_is_changed_before_the_backward_pass_from_the_fourth_step_on(self):
        calls = []

        def loss(model, x):
            calls.append(model)
            found = model(x)
            model.temperature = 1.0 if len(calls) < 4 else 0.5
            return found.pow(2).mean()

        self.refused("does not return what it did in the forward pass", Tempered, loss, rows, steps=5)
        self.assertEqual(len(calls), 4)

    def test_hooks_that_a_model_adds_at_its_first_call_are_there_once(self):
        seen = []

        def loss(model, x):
            found, outputs = model(x)
            seen.append(len(outputs))
            return found.pow(2).mean() + outputs[0].pow(2).mean()

        self.same(Recording, loss, rows)
        self.assertEqual(set(seen), {3})

    def test_what_a_backward_pass_leaves_on_the_weights(self):
        why = r"its backward pass leaves something on its weights \(grad_sample\).* BatchMemoryManager makes micro-batches \(nor would --cut loader train the same\)$"
        for told in (False, True):
            self.refused(why, lambda: PerSample(told), mean_square, rows)  # noqa: B023
        self.same(lambda: Watching(True), mean_square, rows)
        self.assertIn("kept", self.warned)

    def test_what_changes_no_output_is_none(self):
        kept = []

        def loss(model, x):
            kept.append(model)
            return mean_square(model, x)

        self.same(Caching, loss, lambda: torch.randn(64, 8))
        # Three steps of four micro-batches, three of them run again, and nothing of the runs that looked at it.
        self.assertEqual((kept[0].calls, kept[-1].calls), (3, 3 * (4 + 3)))
        self.assertIn("kept", self.warned)

    def test_what_hooks_gather_is_told_of_and_a_look_leaves_nothing_in_it(self):
        for place in ("variable", "object", "argument"):
            self.warned.clear()
            seen = []

            def loss(model, x):
                seen.append(model)  # noqa: B023
                return mean_square(model, x)

            self.same(lambda: Statistics(place), loss, rows)  # noqa: B023
            self.assertIn("kept", self.warned)
            if place == "variable":
                self.assertEqual((seen[0].calls[0], seen[-1].calls[0]), (3, 3 * (4 + 3)))
            else:
                self.assertEqual([len(next(iter(each.gathered.values()))) for each in (seen[0], seen[-1])], [3, 21])

    def test_a_count_is_told_of_and_a_cache_is_not(self):
        self.same(Counted, mean_square, rows)
        self.assertEqual(self.warned, ["kept"])
        self.warned.clear()

        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.masks, self.rows = net(), {}, None

            def forward(self, x):
                self.rows = self.masks.setdefault(x.shape[1], torch.ones(x.shape[1]))
                return self.net(x * self.rows)

        self.same(Cached, mean_square, rows)
        self.assertEqual(self.warned, [])

    def test_what_objects_deques_and_arrays_keep_is_told_of_and_a_look_leaves_nothing_in_it(self):
        def count(place, value, rows):
            place[0] += rows
            place[1] += 1

        meter = lambda place, value, rows: place.update(value, rows)  # noqa: E731
        kinds = [
            (Meter, meter, lambda place: (place.calls, len(place.seen))),
            (lambda: Meter(Meter()), meter, lambda place: (place.inner.calls, len(place.inner.seen))),
            (collections.deque, lambda place, value, rows: place.append(value), lambda place: (len(place),)),
        ]
        if numpy is not None:
            kinds.append((lambda: numpy.zeros(2), count, lambda place: (place[1], place[0] / 16)))
        for make, note, calls in kinds:
            self.warned.clear()
            seen = []

            def loss(model, x):
                seen.append(model)  # noqa: B023
                return mean_square(model, x)

            self.same(lambda: Metering(make(), note), loss, rows)  # noqa: B023
            self.assertEqual(self.warned, ["kept"])
            # Three steps of four micro-batches, three of them run again.
            self.assertEqual(set(calls(seen[-1].place)), {3 * (4 + 3)})

    def test_a_number_in_an_object_that_goes_down_with_each_call(self):
        self.refused(r"from one call to the next \(schedule\)", Cooled, mean_square, rows)

    def test_what_a_look_changes_in_objects_is_brought_back(self):
        from oomtune.hook.cut.attributes import Attributes

        model = nn.Linear(2, 2)
        model.held = Meter(Meter())
        model.held.inner.inner = model.held  # in a circle
        model.last = collections.deque([1, 2, 3], maxlen=3)
        attributes = Attributes(torch, [model])
        self.assertEqual(attributes.changed(), [])
        model.held.inner.seen.append(5)
        model.held.inner.mean.add_(1)
        model.last.append(4)
        self.assertEqual(attributes.changed(), ["held", "last"])
        attributes.restore()
        self.assertEqual((model.held.inner.seen, list(model.last), model.last.maxlen), ([], [1, 2, 3], 3))
        self.assertEqual(model.held.inner.mean.item(), 0.0)

    @unittest.skipUnless(hasattr(torch, "compile"), "this torch (%s) has no torch.compile" % torch.__version__)
    def test_a_count_of_a_compiled_model_is_told_of(self):
        self.same(lambda: torch.compile(Counted(), backend="eager"), mean_square, rows)
        self.assertEqual(self.warned, ["kept"])

    def test_a_refused_module_keeps_what_it_had(self):
        torch.manual_seed(0)
        model, given = Stateful(), steps()
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(16, 64)
        with self.assertRaisesRegex(Exception, "from one call to the next"):
            model(given)
        self.assertEqual((model.state, len(kept.state)), (None, 0))


if __name__ == "__main__":
    unittest.main()
