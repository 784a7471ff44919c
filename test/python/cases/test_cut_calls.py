"""Calls of models as scripts make them, cut: what goes in, what comes out, who calls."""

import concurrent.futures
import dataclasses
import threading
import unittest
from unittest import mock

import torch
from cut_case import CutCase, Refused, mean_square, net, rows, tokens
from torch import nn
from torch.utils.checkpoint import checkpoint

try:
    import transformers
except ImportError:
    transformers = None


class Contrast(nn.Module):
    """A loss with weights of its own that compares the samples of its batch, as sentence-transformers' are."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        if len(x) < 2:
            raise ValueError("expected at least 2 samples")
        found = nn.functional.normalize(self.net(x), dim=1)
        return nn.functional.cross_entropy(found @ found.flip(0).t() * 5, torch.arange(len(x)))


class SomeSamples(nn.Module):
    """A mean over some of its samples: those that a mask counts, or the half that is the hardest."""

    def __init__(self, hardest=False):
        super().__init__()
        self.net, self.hardest = net(), hardest

    def forward(self, x):
        losses = self.net(x).pow(2).mean(1)
        if self.hardest:
            return losses.topk(len(x) // 2).values.mean()
        valid = x[:, 0] > -1.2  # of nine in ten
        return (losses * valid).sum() / valid.sum().clamp(min=1)


class Towers(nn.Module):
    """As CLIP is."""

    def __init__(self, shared=False):
        super().__init__()
        self.one, self.other = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 4)), net()
        self.scale = nn.Parameter(torch.ones(()))
        if shared:
            weight = self.scale
            self.one[1].forward = lambda x: x[:, :4] * weight

    def forward(self, one, other):
        one, other = (nn.functional.normalize(each, dim=1) for each in (self.one(one), self.other(other)))
        return self.scale.exp() * one @ other.t()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x


class Gathering(nn.Module):
    """As a metric does."""

    def __init__(self, seen):
        super().__init__()
        self.net, self.seen = net(), seen

    def forward(self, x):
        self.seen.append(len(x))
        return self.net(x)


def pairs():
    return torch.randn(64, 8), torch.randn(64, 8)


class Level(Contrast):
    """The samples are all alike to it, as at the beginning: the loss of four is that of two and two together."""

    def forward(self, x):
        return super().forward(x / 1e9)


class Mean(Contrast):
    def forward(self, x):
        return self.net(x).pow(2).mean()


class Triplets(nn.Module):
    """A loss around a model that compares samples of one class, of which the first few have none (batch-all triplets)."""

    def __init__(self, make):
        super().__init__()
        self.net = make()

    def forward(self, x, classes):
        found = self.net(x)
        far = (found[:, None] - found).pow(2).sum(2)
        same = classes[:, None] == classes
        same.fill_diagonal_(False)
        one, other = same.nonzero(as_tuple=True)
        loss = ((far[one, other].unsqueeze(1) - far[one] + 1) * (classes[one].unsqueeze(1) != classes)).clamp(min=0)
        return loss.sum() / ((loss > 0).sum() + 1e-16)


def classes():
    return torch.randn(64, 8), torch.arange(8).repeat(8)


class Stepped(nn.Module):
    """As a LightningModule: makes its loss of outputs, in a method, and gathers what it logs."""

    def __init__(self, compares):
        super().__init__()
        self.net, self.compares = net(), compares
        self.epoch, self.count, self.logged = [], torch.zeros(()), []

    def log(self, value):
        self.logged.append(value)

    def training_step(self, batch, index):
        found = self.net(batch["x"])
        self.count += len(found)
        loss = found.pow(2).mean()
        if self.compares:
            found = nn.functional.normalize(found, dim=1)
            loss = nn.functional.cross_entropy(found @ found.flip(0).t() * 5, torch.arange(len(found)))
        self.epoch.append(float(loss.detach()))
        self.log(self.epoch[-1])
        return {"loss": loss, "found": found}


class Looks(CutCase):
    """Micro-batches that a framework makes and adds up: what it trains on them is looked at once."""

    def accumulated(self, make, look):
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.compared._looked = False  # another test's first step has shown it
        self.cut.release()
        for _ in range(3):
            if look:
                self.cut.compared.look(16)
            for part in rows().split(16):
                (model(part) / 4).backward()
            optimizer.step()
            optimizer.zero_grad()
            self.cut.stepped()
        return [parameter.detach().clone() for parameter in model.parameters()]

    def test_a_loss_that_compares_samples_is_refused(self):
        with self.assertRaisesRegex(Refused, "Contrast computes a loss that compares the samples of its batch"):
            self.accumulated(Contrast, look=True)

    def test_it_is_seen_at_the_beginning_too_when_all_samples_are_alike(self):
        with self.assertRaisesRegex(Refused, "Level computes a loss that compares the samples of its batch"):
            self.accumulated(Level, look=True)

    def test_such_a_loss_around_one_model_is_told_where_else_to_cut(self):
        with self.assertRaisesRegex(Refused, r"Contrast .*\(with --cut model it does not\)"):
            self.accumulated(Contrast, look=True)

    def stepped(self, model):
        self.cut.compared._looked = False  # another test's first step has shown it
        self.cut.release()
        self.cut.compared.look(16)
        for index, part in enumerate(rows().split(16)):
            batch = {"x": part}
            self.cut.compared.look_at_step(model, model.training_step, (batch, index), ("log",))
            (model.training_step(batch, index)["loss"] / 4).backward()
        return model

    def test_a_step_that_compares_what_the_model_makes_of_the_samples_is_refused(self):
        why = r"Stepped.training_step computes a loss that compares the samples .*\(with --cut model it does not\)"
        with self.assertRaisesRegex(Refused, why):
            self.stepped(Stepped(compares=True))

    def test_a_step_that_does_not_is_left_as_it_is_and_gathers_nothing_of_the_look(self):
        model = self.stepped(Stepped(compares=False))
        self.assertEqual((len(model.epoch), model.count.item()), (len(rows().split(16)), len(rows())))
        self.assertEqual(model.epoch, model.logged)

    def test_a_mean_over_samples_is_left_as_it_is(self):
        before = self.accumulated(Mean, look=False)
        self.assertTrue(all(map(torch.equal, before, self.accumulated(Mean, look=True))))
        self.assertIsNone(self.cut.calls.take)  # the first step has shown it

    def test_a_layer_that_waits_for_its_first_call_is_made_as_without_a_look(self):
        class Lazy(nn.Sequential):
            def forward(self, x):
                return super().forward(x).pow(2).mean()

        make = lambda: Lazy(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(2))  # noqa: E731
        before = self.accumulated(make, look=False)
        self.assertTrue(all(map(torch.equal, before, self.accumulated(make, look=True))))


class Calls(CutCase):
    def test_a_loss_around_one_model_compares_the_samples_of_the_whole_batch(self):
        self.same(Contrast, lambda model, x: model(x), rows)

    def test_a_loss_that_calls_its_model_twice(self):
        class Pairs(Contrast):
            def forward(self, x):
                one, other = (nn.functional.normalize(self.net(each), dim=1) for each in (x, x.flip(1)))
                return nn.functional.cross_entropy(one @ other.t() * 5, torch.arange(len(x)))

        self.same(Pairs, lambda model, x: model(x), rows)

    def test_a_loss_around_one_model_that_is_zero_for_the_samples_that_are_looked_at(self):
        self.same(lambda: Triplets(net), lambda model, given: model(*given), classes)
        self.assertEqual(self.cut.count, 3)

    def test_a_mean_over_some_of_the_samples_is_none_over_all_though_it_is_for_the_first_that_are_looked_at(self):
        for hardest in (False, True):
            self.same(lambda: SomeSamples(hardest), lambda model, x: model(x), rows)  # noqa: B023

    def test_such_a_loss_beside_another_model_runs_whole(self):
        make = lambda: nn.ModuleDict({"net": net(), "loss": Triplets(lambda: nn.Linear(4, 4))})  # noqa: E731
        self.same(make, lambda model, given: model["loss"](model["net"](given[0]), given[1]), classes)
        self.assertEqual((self.cut.count, self.warned), (3, ["uncut"]))

    def test_such_a_loss_with_layers_of_its_own_is_refused_for_other_cuts_too(self):
        why = r"Triplets cannot be cut: .* neither a mean nor a sum .*\(nor would --cut loader train the same\)$"
        self.refused(why, lambda: Triplets(lambda: nn.Linear(8, 4)), lambda model, given: model(*given), classes)

    def test_a_loss_with_weights_beside_its_model(self):
        class Scaled(Contrast):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(()))

            def forward(self, x):
                return super().forward(x) * self.scale

        self.same(Scaled, lambda model, x: model(x), rows)

    def test_towers_whose_outputs_are_compared_in_the_module(self):
        self.same(Towers, lambda model, x: nn.functional.cross_entropy(model(*x), torch.arange(64)), pairs)
        self.assertEqual(self.cut.count, 2 * 3)
        self.same(Towers, lambda model, x: nn.functional.cross_entropy(model(*x), torch.arange(64)), pairs, micro=32)

    def test_what_can_be_cut_neither_itself_nor_in_its_parts_tells_of_both(self):
        why = (
            r"Towers cannot be cut: its outputs do not join along the samples .*; nor can Sequential: it uses a tensor .*"
            r"nor would --cut loader train the same"
        )
        self.refused(why, lambda: Towers(shared=True), lambda model, x: model(*x).pow(2).mean(), pairs)

    def test_parts_that_have_no_row_for_each_sample_are_told_of(self):
        class Paired(Towers):
            def forward(self, one, other):
                return super().forward(one.view(16, -1)[:, :8], other.view(16, -1)[:, :8])

        why = r"Paired cannot be cut: .*; and no part of it is called with a row for each of the batch's samples$"
        self.refused(why, Paired, lambda model, x: model(*x).pow(2).mean(), pairs)

    def helped(self, make, **more):
        """Trains a model beside another one that no optimizer steps; returns how many rows that was called with."""
        other = make()
        seen, forward = [], other.forward
        # (no hook: one that keeps something has to see the whole batch)
        other.forward = lambda x: (seen.append(len(x)), forward(x))[1]
        loss = lambda model, x: nn.functional.mse_loss(model(x), of(other, x)) + other(model(x).repeat(1, 2)).mean()  # noqa: E731

        def of(module, x):
            with torch.no_grad():
                return module(x)

        self.same(net, loss, rows, **more)
        return seen[6:]  # of the cut run

    def test_models_that_no_optimizer_steps_are_cut_too(self):
        self.assertEqual(max(self.helped(net)), 16)

    def test_those_that_would_draw_or_keep_something_else_run_whole(self):
        for make in (
            lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)),
            lambda: nn.Sequential(nn.Linear(8, 4), nn.Flatten(), Counting()),
        ):
            self.assertIn(64, self.helped(make))
        kept = []
        self.assertIn(64, self.helped(lambda: Gathering(kept)))
        self.assertEqual(set(kept), {64})

    def adversaries(self, seen):
        """Weights after three steps in which one model learns from another that is frozen meanwhile, and then learns itself."""
        torch.manual_seed(0)
        model = net()
        other = nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))
        forward = other.forward
        other.forward = lambda x: (seen.append(len(x)), forward(x))[1]
        steps = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other)]
        for _ in range(3):
            made = model(rows())
            for learns, given, step in ((False, made, steps[0]), (True, made.detach(), steps[1])):
                other.requires_grad_(learns)
                step.zero_grad()
                other(given).pow(2).mean().backward()
                step.step()
        return [each.detach().clone() for each in (*model.parameters(), *other.parameters())]

    def test_models_that_are_frozen_at_first_are_cut_like_those_that_learn(self):
        from oomtune.hook.cut.call_looks import CallLooks

        bare, seen = self.adversaries([]), []
        self.cut.engage(16, 64)
        with mock.patch.object(CallLooks, "check", autospec=True, side_effect=CallLooks.check) as looks:
            tuned = self.adversaries(seen)
        self.assertEqual(max(seen), 16)
        for one, other in zip(bare, tuned):
            self.assertLess(float((one - other).norm()), 1e-9)
        # Of each of them, frozen and not, once.
        self.assertEqual(looks.call_count, 3)

    def test_a_frozen_model_that_no_gradient_goes_through_runs_whole_until_it_learns(self):
        other = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        seen, forward = [], other.forward
        other.forward = lambda x: (seen.append(len(x)), forward(x))[1]
        model = net()
        kept = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
        self.cut.engage(16, 64)
        for _ in range(2):
            model(other(rows())).pow(2).mean().backward()
        self.assertEqual((set(seen), len(kept.state)), ({64}, 0))
        del seen[:]
        other.requires_grad_()
        model(other(rows())).pow(2).mean().backward()
        self.assertEqual(max(seen), 16)

    def test_outputs_in_a_dataclass(self):
        def loss(model, x):
            output = model(x)
            self.assertIs(type(output), Output)
            self.assertEqual((len(output.features), output.name), (64, "one"))
            return output.scores.pow(2).mean() + output.features.pow(2).sum(1).mean()

        self.same(Structured, loss, rows)

    def test_nested_inputs_by_keyword(self):
        def loss(model, x):
            given = {"rows": x, "more": [x.flip(1), {"scale": torch.full((64, 1), 2.0)}]}
            return model(given=given, factor=0.5)[0]["out"].pow(2).mean()

        self.same(Nested, loss, rows)

    def test_inputs_without_a_row_for_each_sample(self):
        shared = torch.arange(8.0)

        def loss(model, x):
            return model(x, shared.to(x), torch.eye(4, dtype=x.dtype), 3).pow(2).mean()

        self.same(Shared, loss, rows)

    def test_a_shared_input_that_learns(self):
        def loss(model, x):
            return model["net"](x + 0 * x, model["prompt"].weight[0], torch.eye(4, dtype=x.dtype), 3).pow(2).mean()

        self.same(lambda: nn.ModuleDict({"net": Shared(), "prompt": nn.Linear(8, 1)}), loss, rows)

    def test_a_leaf_that_the_module_makes_of_its_input(self):
        # As Wav2Vec2 does, so that its first block is checkpointed.
        self.same(Leaf, mean_square, rows)
        self.refused("is kept that carries gradients", lambda: Leaf(keeps=True), mean_square, rows)

    def at_the_module(self):
        """Not at the model inside, where the module is refused."""
        return mock.patch("oomtune.hook.cut.cut.is_made_of_models", lambda module: False)

    def test_containers_of_the_scripts_own_classes(self):
        def loss(model, x):
            found = model(x)
            first = found["made"] if isinstance(found, dict) else found[0]
            return first.mean() + found.square.mean() + found.more[0].pow(3).mean()

        def attributes(model, x):
            found = model(x)
            self.assertEqual([found[name] is getattr(found, name) for name in found], found.alike)
            by_name = found["made"].mean() + found["square"].mean()
            return by_name + found.made.pow(3).mean() + found.more[0].pow(3).mean()

        for kind in (Listed, Pair, Named):
            with self.subTest(kind=kind.__name__):
                self.same(lambda kind=kind: Returning(kind), loss, rows)
        for kind in (Attributed, Doubled, Sized, Scaled):
            with self.subTest(kind=kind.__name__), self.at_the_module():
                self.same(lambda kind=kind: Returning(kind), attributes, rows)
        words = r"it returns an object \(Knowing\) that may hold its samples, and cannot be looked into"
        with self.at_the_module():
            self.refused(words, lambda: Returning(Knowing), loss, rows)

    def test_dictionaries_that_are_read_by_attribute(self):
        for kind in (Attributed, Doubled, Sized, lambda *values: Answering(zip(("made", "square", "more"), values))):
            with self.subTest(kind=kind.__name__), self.at_the_module():
                made = lambda kind=kind: kind(rows(), rows().pow(2), rows())  # noqa: E731
                self.same(Looking, mean_square, made)

    @unittest.skipIf(transformers is None, "transformers")
    def test_an_output_of_transformers_of_which_an_entry_is_taken_back(self):
        class Taking(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net()

            def forward(self, x):
                made = self.net(x)
                found = transformers.modeling_outputs.BaseModelOutputWithPooling(made, x)
                found.pooler_output = None
                return {"found": found, "more": made.pow(2)}

        def loss(model, x):
            given = model(x)
            self.assertIsNone(given["found"].pooler_output)
            return given["found"].last_hidden_state.pow(3).mean() + given["more"].mean()

        with self.at_the_module():
            self.same(Taking, loss, rows)

    def test_tensors_without_a_row_for_each_sample(self):
        dense = {
            "sparse": lambda found: found.to_dense(),
            "nested": lambda found: torch.nested.to_padded_tensor(found, 0.0),
        }
        for kind, instead in dense.items():
            with self.subTest(kind=kind):
                words = "%s cannot be cut: it returns a %s tensor: (dense|padded) .* joins along the samples$"
                loss = lambda model, x, instead=instead: instead(model(x)).pow(2).mean()  # noqa: E731
                self.refused(words % ("Unjoined", kind), lambda kind=kind: Unjoined(kind, nn.Linear(8, 4)), loss, rows)
                # (a model inside is cut instead)
                self.same(lambda kind=kind: Unjoined(kind, net()), loss, rows)

    def test_inputs_that_have_no_rows_to_be_taken(self):
        made = {
            "sparse": lambda: torch.randn(64, 8).relu().to_sparse(),
            "nested": lambda: torch.nested.nested_tensor([torch.randn(8) for _ in range(64)]),
        }
        for kind, inputs in made.items():
            words = "it is given a %s tensor: (dense|padded) .*, it is cut with its samples$" % kind
            self.refused(words, Densifying, mean_square, inputs)
        shared = torch.eye(8).to_sparse()
        self.same(Densifying, lambda model, x: model(x, shared.to(x)).pow(2).mean(), rows)

    def test_bags_that_offsets_tell_apart_and_those_in_a_row_each(self):
        def bags():
            return torch.randint(1, 50, (256,)), torch.arange(0, 256, 4)

        def padded():
            return torch.randint(0, 50, (64, 4))

        words = "its bags are in one row, .*: padded, with padding_idx, they are cut$"
        self.refused(words, Bags, lambda model, x: model(*x).pow(2).mean(), bags)
        self.same(Bags, mean_square, padded)

    def test_as_many_steps_as_samples(self):
        def square():
            return torch.randn(64, 64, 8)

        self.same(LastStep, mean_square, square)
        self.same(lambda: LastStep(every=True), mean_square, square)

    def test_a_leaf_that_the_module_makes_for_itself(self):
        def loss(model, x):
            made, extra = model(x)
            return made.pow(2).mean() + extra.sum()

        self.same(lambda: Penalised("its own"), loss, rows)
        self.same(lambda: Penalised("its own", reentrant=True), loss, rows)
        # Where anybody could see its gradient it would be that of a micro-batch.
        words = "a tensor that learns and is neither an input nor a parameter"
        self.same(lambda: Penalised("a buffer"), loss, rows)
        torch.manual_seed(0)
        model, x = Penalised("a buffer"), rows()
        found = []
        for micro in (0, 16):
            if micro:
                self.cut.engage(micro, 64)
            loss(model, x).backward()
            found.append(model.zero.grad)
            model.zero.grad = None
        self.assertEqual(found, [torch.ones(1)] * 2)  # (it is seen)
        for kind in ("of elsewhere", "kept", "kept in a graph"):
            self.refused(words, lambda kind=kind: Penalised(kind), loss, rows)
        for kind in ("returned", "hooked"):
            self.refused(words + ".* neither returns nor hooks", lambda kind=kind: Penalised(kind), loss, rows)

    def test_a_model_that_is_trained_in_evaluation_mode(self):
        def make():
            return nn.Sequential(nn.BatchNorm1d(8), net()).eval()

        self.same(make, mean_square, rows)

        def evaluated(model, x):
            found = mean_square(model, x)
            count = self.cut.count
            model.eval()(x)
            self.assertEqual(
                self.cut.count, count
            )  # the evaluation of one that is trained in training mode, without no_grad()
            model.train()
            return found

        self.same(net, evaluated, rows)

    def called(self, make, loss):
        """With how many rows the model was called in the cut run, to the same weights. Each of the three losses calls it twice."""
        seen = []

        def made():
            model = make()
            forward = model.forward
            model.forward = lambda x: (seen.append(len(x)), forward(x))[1]
            return model

        self.same(made, loss, rows)
        return seen[6:]

    def test_a_model_that_a_step_asks_in_evaluation_mode(self):
        # Gradients of the samples, once it has been trained in training mode: an attack on them.
        def attacked(model, x):
            for _ in range(2):
                model.eval()
                for _ in range(2):
                    x = x.detach().requires_grad_()
                    (gradient,) = torch.autograd.grad(model(x).pow(2).mean(), x)
                    x = (x + gradient).detach()
                count = self.cut.count
                found = mean_square(model.train(), x)
                if self.cut.engaged:
                    self.assertEqual(count % 3, 2)
                found.backward(retain_graph=True)
                model.zero_grad()
            return found

        self.same(net, attacked, rows)

    def test_targets_that_a_model_makes_for_itself(self):
        def targets(model, x):
            with torch.no_grad():
                target = model(x.flip(0))
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward(retain_graph=True)
            model.zero_grad()
            return loss

        def evaluated(model, x):
            loss = mean_square(model, x)
            loss.backward(retain_graph=True)
            model.zero_grad()
            for _ in range(1):
                with torch.no_grad():
                    model(x.flip(0))
            return loss

        self.assertEqual(max(self.called(net, targets)), 16)
        self.assertEqual(self.called(net, evaluated).count(64), 3)  # no step waits for it
        # It would draw other random numbers.
        model = nn.Sequential(net(), nn.Dropout())
        seen, forward = [], model.forward
        model.forward = lambda x: (seen.append(len(x)), forward(x))[1]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(16, 64)
        targets(model, rows())
        self.assertEqual((seen.count(64), len(optimizer.state)), (1, 0))

    def test_an_input_that_the_module_detaches_after_the_backward_pass_of_what_made_it(self):
        def loss(model, x):
            made = model[0](x)
            made.pow(2).mean().backward()
            return sum(each.pow(2).mean() for each in model[1](x[:, :4], made))

        self.same(lambda: nn.ModuleList([net(), Detaching()]), loss, rows)

    def test_threads_inside_of_a_module(self):
        # As DataParallel does with a replica for each device.
        self.same(Threaded, mean_square, rows)

    def test_threads_that_train_stop(self):
        refused = []

        def loss(model, x):
            def call():
                try:
                    return model(x).pow(2).mean()
                except Refused as reason:
                    refused.append(str(reason))
                    raise

            value = call()
            thread = threading.Thread(target=lambda: concurrent_call(call))
            thread.start()
            thread.join()
            return value

        self.train(net, loss, rows, 16, steps=1)
        self.assertEqual(refused, ["several threads train"])

    def test_buffers_that_are_made_of_the_samples_are_warned_of(self):
        self.train(Averaging, lambda m, x: m(x).pow(2).mean(), rows, 16)
        self.assertEqual(self.warned, ["buffers"])

    def test_random_numbers_that_a_forward_pass_draws_are_told_once(self):
        self.train(lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4)), mean_square, rows, 16)
        self.assertEqual(self.warned, ["random_draws"])
        self.warned.clear()
        self.train(Noisy, mean_square, rows, 16)
        self.assertEqual(self.warned, ["random_draws"])

    def test_what_draws_nothing_is_not_told_so(self):
        def evaluated():
            return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5).eval(), nn.Linear(16, 4))

        for make in (net, lambda: Noisy(forked=True), evaluated):
            self.train(make, mean_square, rows, 16)
            self.assertEqual(self.warned, [])

    def test_a_buffer_that_counts_calls_is_not(self):
        self.train(lambda: Averaging(counts=True), lambda m, x: m(x).pow(2).mean(), rows, 16)
        self.assertEqual(self.warned, [])

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_transformers_with_labels(self):
        def make():
            torch.set_default_dtype(torch.float64)
            config = transformers.GPT2Config(
                vocab_size=50,
                n_positions=12,
                n_embd=16,
                n_layer=2,
                n_head=2,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=1,
                eos_token_id=1,
            )
            return transformers.GPT2LMHeadModel(config)

        def padded():
            given, wanted = tokens()
            return {
                "input_ids": given,
                "labels": wanted.masked_fill(wanted < 0, -100),
                "attention_mask": torch.ones_like(given),
            }

        # Its loss is made in single precision.
        self.same(make, lambda m, x: m(**x).loss, padded, steps=4, tolerance=1e-6)
        self.same(make, lambda m, x: m(**x)[0] + m(**x).logits.pow(2).mean(), padded, tolerance=1e-6)

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_transformers_with_labels_of_classes(self):
        def make():
            config = transformers.BertConfig(
                vocab_size=50,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=12,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                num_labels=3,
            )
            return transformers.BertForSequenceClassification(config)

        def loss(model, x):
            output = model(**x)
            self.assertEqual(tuple(output.logits.shape), (64, 3))
            return output.loss

        self.same(make, loss, lambda: {"input_ids": tokens()[0], "labels": torch.randint(3, (64,))}, steps=4)


def concurrent_call(call):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(call)


@dataclasses.dataclass
class Output:
    scores: torch.Tensor
    features: torch.Tensor
    name: str = "one"


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        features = torch.tanh(self.body(x))
        return Output(self.head(features), features)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, given, factor):
        flipped, more = given["more"]
        return ({"out": self.net(given["rows"] + factor * flipped) * more["scale"]}, None)


class Shared(nn.Module):
    """Some inputs are the same for all samples."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, bias, mix, times):
        return self.net(x + bias) @ mix * times


class Leaf(nn.Module):
    def __init__(self, keeps=False):
        super().__init__()
        self.net, self.keeps = net(), keeps

    def forward(self, x):
        x = x[:, None]
        if self.training:
            x.requires_grad = True
        if self.keeps:
            self.leaf = x
        return self.net(x)


class Listed(list):
    """With a constructor of its own."""

    def __init__(self, made, square, more):
        super().__init__([made])
        self.square, self.more = square, (more, [3])


class Knowing(Listed):
    def __init__(self, *values):
        super().__init__(*values)
        self.more[1][:] = [self]


class Pair(tuple):
    def __new__(cls, *values):
        return super().__new__(cls, values[0] if len(values) == 1 else values[:1])

    def __init__(self, made, square=None, more=None):
        self.square, self.more = square, [more]


class Named(dict):
    __slots__ = ("more", "square")

    def __init__(self, made, square, more):
        super().__init__(made=made)
        self.square, self.more = square, [more]


class Attributed(dict):
    """Its entries are its attributes."""

    alike = [True] * 3

    def __init__(self, made, square, more):
        super().__init__(made=made, square=square, more=[more])
        self.__dict__ = self


class Doubled(dict):
    """Each entry is an attribute, too."""

    alike = [True] * 3

    def __init__(self, made, square, more):
        super().__init__(made=made, square=square, more=[more])
        self.__dict__.update(self)


class Sized(Doubled):
    """One of its attributes is hidden by a property, which cannot be set."""

    def __init__(self, *values):
        super().__init__(*values)
        self.__dict__["size"] = 3

    @property
    def size(self):
        return self.__dict__["size"]


class Scaled(Doubled):
    """One of its attributes has the name of an entry, and another value."""

    alike = [False, True, True]

    def __init__(self, made, square, more):
        super().__init__(made, square, more)
        self.made = made * 100


class Answering(dict):
    __getattr__ = dict.__getitem__


class Looking(nn.Module):
    """Reads its input by attribute."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, given):
        return self.net(given.made) + given["square"].mean(1, keepdim=True)


class Returning(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net, self.kind = net(), kind

    def forward(self, x):
        made = self.net(x)
        return self.kind(made, made.pow(2), made.tanh())


class Unjoined(nn.Module):
    def __init__(self, kind, inner):
        super().__init__()
        self.inner, self.kind = inner, kind

    def forward(self, x):
        made = self.inner(x)
        return made.to_sparse() if self.kind == "sparse" else torch.nested.as_nested_tensor(list(made.unbind()))


class Densifying(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x, mix=None):
        if mix is not None:
            return self.linear(torch.sparse.mm(mix, x.t()).t())
        return self.linear(torch.nested.to_padded_tensor(x, 0.0) if x.is_nested else x.to_dense())


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags, self.linear = nn.EmbeddingBag(50, 16, padding_idx=0), nn.Linear(16, 4)

    def forward(self, words, offsets=None):
        return self.linear(self.bags(words, offsets))


class LastStep(nn.Module):
    """Of sequences with time first."""

    def __init__(self, every=False):
        super().__init__()
        self.recurrent, self.every = nn.GRU(8, 4), every

    def forward(self, x):
        found, _ = self.recurrent(x)
        return found if self.every else found[-1]


class Penalised(nn.Module):
    """Adds up a loss of its own from a leaf, as vector quantisers do."""

    def __init__(self, kind, reentrant=False):
        super().__init__()
        self.net, self.kind, self.reentrant = net(), kind, reentrant
        self.register_buffer("zero", torch.zeros(1))
        self.leaves = [torch.ones(1, requires_grad=True)]
        self.made = self.leaves[0] * 2 if kind == "kept in a graph" else None
        if kind == "kept in a graph":
            self.leaves.clear()

    def forward(self, x):
        extra = self.zero.requires_grad_() if self.kind == "a buffer" else torch.zeros(1, requires_grad=True)
        if self.kind == "of elsewhere":
            extra = self.leaves[0] * 2
        if self.kind == "kept":
            self.leaves[:] = [extra]
        if self.kind == "kept in a graph":
            extra = self.made
        if self.kind == "hooked":
            extra.register_hook(lambda gradient: gradient)
        made = checkpoint(self.net, x + extra, use_reentrant=True) if self.reentrant else self.net(x)
        return made, extra if self.kind == "returned" else extra + made.abs().mean()


class Detaching(nn.Module):
    """Looks at what it is given and at what another module made, and teaches that nothing."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, x, made):
        return self.net(x), self.net(made.detach())


class Threaded(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        grad = torch.is_grad_enabled()

        def half(part):
            with torch.set_grad_enabled(grad):
                return self.net(part)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return torch.cat(list(pool.map(half, x.chunk(2))))


class Averaging(nn.Module):
    def __init__(self, counts=False):
        super().__init__()
        self.net, self.counts = net(), counts
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        if self.training:
            self.average.add_(1.0 if self.counts else x.detach().mean(0))
        return self.net(x)


class Noisy(nn.Module):
    """Adds noise to its samples, perhaps from a generator that is as before afterwards."""

    def __init__(self, forked=False):
        super().__init__()
        self.forked = forked
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        if not self.forked:
            return self.layer(x + 0.1 * torch.randn_like(x))
        with torch.random.fork_rng():
            return self.layer(x + 0.1 * torch.randn_like(x[:1]))


if __name__ == "__main__":
    unittest.main()
