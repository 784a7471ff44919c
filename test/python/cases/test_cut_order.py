"""Sequences whose outputs are flattened: which rows of them are whose, with the batch or the time first."""

import functools
import unittest
from unittest import mock

import torch
from cut_case import CutCase, net, rows
from torch import nn

TOKENS, WIDTH, WORDS = 12, 16, 30


class Words(nn.Module):
    """As the examples' language model: the state comes with the words, and the log-probabilities of all tokens are one matrix."""

    def __init__(self, batch_first=False, zero=False, noise=0.0):
        super().__init__()
        self.embedding, self.head, self.noise = nn.Embedding(WORDS, 8), nn.Linear(WIDTH, WORDS), noise
        self.recurrent = nn.LSTM(8, WIDTH, 2, batch_first=batch_first)
        if zero:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, words, state=None):
        x = self.embedding(words)
        if self.noise:
            x = x + self.noise * torch.randn_like(x)
        x, state = self.recurrent(x, state)
        return nn.functional.log_softmax(self.head(x).view(-1, WORDS), dim=1), state


def words(batch=64, tokens=TOKENS, batch_first=False):
    def made():
        shape = (batch, tokens) if batch_first else (tokens, batch)
        state = torch.zeros(2, batch, WIDTH), torch.zeros(2, batch, WIDTH)
        return torch.randint(WORDS, shape), torch.randint(WORDS, (batch * tokens,)), state

    return made


def loss(model, given):
    return nn.functional.nll_loss(model(given[0], state=given[2])[0], given[1])


class Order(CutCase):
    def test_time_first(self):
        self.same(Words, loss, words())
        self.same(Words, loss, words(tokens=1))
        self.same(Words, loss, words(batch=2), batch=2, micro=1)
        # As many tokens, or as many layers, as samples.
        self.same(Words, loss, words(tokens=64))
        self.same(Words, loss, words(batch=2, tokens=2), batch=2, micro=1)
        torch.set_default_dtype(torch.float32)
        self.same(Words, loss, words(), tolerance=1e-5)

    def test_batch_first(self):
        make = lambda: Words(batch_first=True)  # noqa: E731
        self.same(make, loss, words(batch_first=True))
        self.same(make, loss, words(tokens=64, batch_first=True))

    def test_sequences_of_another_length_than_before(self):
        for first in (False, True):
            for lengths in ((12, 7, 12), (4, 8, 1, 6)):
                with self.subTest(batch_first=first, lengths=lengths):
                    left = []

                    def next_words(left=left, lengths=lengths, first=first):
                        left[:] = left or lengths
                        return words(tokens=left.pop(0), batch_first=first)()

                    steps = len(lengths)
                    self.same(functools.partial(Words, first), loss, next_words, steps=steps)
                    self.assertEqual(self.cut.count, steps)

    def test_a_length_that_was_looked_at_is_not_looked_at_again(self):
        from oomtune.hook.cut.call_looks import CallLooks

        model = Words()
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        self.cut.engage(16, 64)
        with mock.patch.object(CallLooks, "check", autospec=True, side_effect=CallLooks.check) as looks:
            for tokens in (12, 7, 12, 7):
                loss(model, words(tokens=tokens)())
        self.assertEqual((looks.call_count, self.cut.count, len(kept.state)), (2, 4, 0))

    def test_a_head_of_zeros_which_returns_the_same_for_all_samples(self):
        for first in (False, True):
            self.same(lambda: Words(first, zero=True), loss, words(batch_first=first))  # noqa: B023

    def test_weights_that_are_looked_at_with_other_values_keep_their_own(self):
        torch.manual_seed(0)
        model = Words(zero=True)
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        before = [each.clone() for each in model.state_dict().values()]
        self.cut.engage(16, 64)
        state = torch.get_rng_state()
        given = words()()
        torch.set_rng_state(state)
        loss(model, given)
        self.assertEqual((self.cut.count, len(kept.state)), (1, 0))
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertTrue(all(map(torch.equal, before, model.state_dict().values())))

    def test_a_state_that_is_carried_from_step_to_step(self):
        carried = []

        def step(model, given):
            output, state = model(given[0], carried[-1] if carried else given[2])
            carried.append(tuple(each.detach() for each in state))
            return nn.functional.nll_loss(output, given[1])

        def make():
            del carried[:]
            return Words()

        self.same(make, step, words(), steps=5)

    def test_parts_are_as_contiguous_as_the_whole(self):
        class Viewing(Words):
            def forward(self, words, state=None):
                # As view() and cuDNN ask for it.
                assert words.view(-1).is_contiguous() and all(each.is_contiguous() for each in state)
                return super().forward(words, state)

        self.same(Viewing, loss, words())
        self.same(net, lambda m, x: m(x).pow(2).mean(), lambda: rows().t().contiguous().t())

    def test_outputs_lie_in_memory_as_those_of_the_whole_batch(self):
        def noisy(model, x):
            found = model(x)
            seen.append(found.stride())
            return (found + torch.randn_like(found)).pow(2).mean()

        for micro in (16, 1):
            for make, inputs in ((Encoder, images), (TimeFirst, rows), (Expanded, rows)):
                seen = []
                self.same(make, noisy, inputs, micro)
                self.assertEqual(seen[:3], seen[3:])
            self.same(TimeFirst, lambda m, x: m(x).transpose(0, 1).view(-1, 4).pow(2).mean(), rows, micro)

    def test_outputs_can_be_written_to(self):
        def written(model, x):
            found = model(x)
            found += 1
            return found.relu_().pow(2).mean()

        self.same(Encoder, written, images)
        self.same(net, written, rows)

    def test_inputs_lie_in_memory_as_in_the_whole_batch(self):
        class Viewing(nn.Linear):
            def forward(self, x):
                return super().forward(x.transpose(0, 1).view(-1, 8)).view(TOKENS, -1, 4).transpose(0, 1)

        make, inputs = lambda: Viewing(8, 4), lambda: torch.randn(TOKENS, 64, 8).transpose(0, 1)
        for micro in (16, 1):
            self.same(make, lambda m, x: m(x).pow(2).mean(), inputs, micro)

    def test_gradients_of_inputs_lie_in_memory_as_those_of_the_whole_batch(self):
        def penalty(model, x):
            again = len(seen) % 2 > 0
            x = (x * 1).requires_grad_()
            (found,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=again)
            seen.append(found.stride())
            return model(x).mean() + (found * torch.randn_like(found)).sum() * 0.01

        seen = []
        self.same(Encoder, penalty, images, steps=4)
        self.assertEqual(seen[:4], seen[4:])

    def test_packed_sequences_which_the_script_has_sorted(self):
        def sorted_by_length():
            lengths = torch.randint(3, 20, (64,)).sort(descending=True)[0]
            real = torch.arange(int(lengths[0])) < lengths[:, None]
            return torch.randint(1, WORDS, real.shape) * real, lengths

        self.same(Packed, lambda m, x: m(*x).pow(2).mean(), sorted_by_length)

    def test_sequences_that_are_padded_again_are_as_long_as_the_longest_unless_told(self):
        def longest_last():
            lengths = torch.arange(64) % 16 + 4
            lengths[:62] = lengths[:62].clamp_max(12)  # looked at first: alike
            return torch.randint(1, WORDS, (64, 19)), lengths

        def shuffled():
            lengths = torch.randint(3, 20, (64,))
            lengths[0] = 19
            return torch.randint(1, WORDS, (64, 19)), lengths

        loss = lambda m, x: m(*x).pow(2).mean()  # noqa: E731
        for inputs in (longest_last, shuffled):
            self.refused(
                r"its outputs do not join along .*; where it calls pad_packed_sequence\(\), total_length",
                Repadded,
                loss,
                inputs,
            )
            self.same(lambda: Repadded(19), loss, inputs)

    def test_an_object_that_computes_with_the_samples_later(self):
        class Later(nn.Module):
            def __init__(self, make):
                super().__init__()
                self.net, self.make = nn.Linear(8, 4), make

            def forward(self, x):
                return self.make(self.net, x)

        kinds = {
            "function": lambda net, x: lambda: net(x),
            "partial": functools.partial,
            "Slotted": Slotted,
        }
        for name, make in kinds.items():
            loss = lambda m, x: m(x)().pow(2).mean()  # noqa: E731
            self.refused(
                r"it returns an object \(%s\) that may hold its samples" % name,
                lambda: Later(make),  # noqa: B023
                loss,
                rows,
            )
        # One that is the same for all is no hindrance.
        shared = lambda net, x: (net(x), torch.relu)  # noqa: E731
        self.same(lambda: Later(shared), lambda m, x: m(x)[1](m(x)[0]).mean(), rows)

    def test_sequences_that_the_script_has_packed_are_refused_before_the_model_runs(self):
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.recurrent, self.head = nn.GRU(8, WIDTH), nn.Linear(WIDTH, 4)

            def forward(self, given):
                ran.append(len(given.data))
                return self.head(self.recurrent(given)[1][-1])

        def packed():
            lengths = torch.randint(3, 20, (64,))
            return nn.utils.rnn.pack_padded_sequence(torch.randn(20, 64, 8), lengths, enforce_sorted=False)

        ran = []
        why = r"a PackedSequence, which has no row for each sample; .*cut with their samples$"
        self.refused(why, Reader, lambda m, x: m(x).pow(2).mean(), packed)
        self.assertEqual(ran, [])

    def test_a_module_that_draws_random_numbers_in_every_mode(self):
        # Too few to change the weights by much, and enough to be seen.
        for first in (False, True):
            make = lambda: Words(first, noise=3e-2)  # noqa: B023, E731
            self.same(make, loss, words(batch_first=first), tolerance=0.1)
            self.assertIn("random_draws", self.warned)

    def test_a_module_that_draws_random_numbers_and_mixes_its_samples(self):
        self.refused("depends on the other samples", NoisyMixing, lambda m, x: m(x).pow(2).mean(), rows)

    def test_samples_that_are_all_the_same(self):
        make = lambda: nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(0, 1), nn.Linear(8, WORDS))  # noqa: E731
        same = lambda m, x: nn.functional.cross_entropy(m(x), torch.randint(WORDS, (64 * TOKENS,)))  # noqa: E731
        self.refused("too much alike to see which rows", make, same, lambda: torch.zeros(TOKENS, 64, dtype=torch.long))
        self.same(make, same, lambda: torch.randint(WORDS, (TOKENS, 64)))


def images():
    return torch.randn(64, 3, 4, 5)


class Encoder(nn.Module):
    """Its output has the channels last in memory."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class TimeFirst(nn.Module):
    """The batch comes first, and time does in memory, as of a recurrent network: for one sample there is no difference to be seen."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x):
        return self.layer(x.view(-1, 4, 2).transpose(0, 1).contiguous()).transpose(0, 1).tanh()


class Expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x).unsqueeze(1).expand(-1, 3, -1) * 1


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(WORDS, 8), nn.LSTM(8, WIDTH, batch_first=True)

    def forward(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(words), lengths, batch_first=True)
        return self.recurrent(packed)[1][0][-1]


class Repadded(nn.Module):
    """Packed, and padded again, to the longest of its samples or to `length`."""

    def __init__(self, length=None):
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(WORDS, 8), nn.GRU(8, WIDTH, batch_first=True)
        self.length = length

    def forward(self, words, lengths):
        given = nn.utils.rnn.pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        return nn.utils.rnn.pad_packed_sequence(self.recurrent(given)[0], True, total_length=self.length)[0]


class Slotted:
    __slots__ = ("net", "x")

    def __init__(self, net, x):
        self.net, self.x = net, x

    def __call__(self):
        return self.net(self.x)


class NoisyMixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x + 0.1 * torch.randn_like(x))
        return x - x.mean(0)


if __name__ == "__main__":
    unittest.main()
