"""Random numbers that are drawn in the forward pass and once more in the backward pass."""

import unittest

import torch
from cut_case import CutCase, mean_square, rows
from torch import nn

GPU = torch.cuda.is_available()


class OwnGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.source = nn.Linear(8, 4), torch.Generator().manual_seed(1)

    def forward(self, x):
        return self.layer(x + 0.1 * torch.randn(x.shape, generator=self.source, dtype=x.dtype).to(x.device))


class Diffusion(nn.Module):
    """A loss of its own, on noise that it draws for each sample at a time that it draws, as diffusion models train."""

    def __init__(self, mixes=False):
        super().__init__()
        self.layer, self.mixes = nn.Linear(9, 8), mixes

    def forward(self, x):
        noise, time = torch.randn_like(x), torch.randint(0, 10, (len(x),)).to(x.dtype)[:, None] / 10
        if self.mixes:
            x = 0.5 * x + 0.5 * x[torch.randperm(len(x))]
        found = self.layer(torch.cat([(1 - time) * x + time * noise, time], 1))
        return (found - noise).pow(2).mean()


class Masked(Diffusion):
    """Hides parts of each sample that it draws, and returns its loss with what it made."""

    def forward(self, x):
        hidden = torch.rand(len(x), 8, dtype=x.dtype).argsort(1) < 6
        found = self.layer(torch.cat([x.masked_fill(hidden, 0), torch.zeros_like(x[:, :1])], 1))
        return ((found - x).pow(2) * hidden).sum() / hidden.sum(), found, hidden


class MaskedByChance(Masked):
    """Hides as many parts of a sample as it happens to: its loss is a mean over all of them, not over samples."""

    def forward(self, x):
        hidden = torch.rand(len(x), 8, dtype=x.dtype) < 0.4
        found = self.layer(torch.cat([x.masked_fill(hidden, 0), torch.zeros_like(x[:, :1])], 1))
        return ((found - x).pow(2) * hidden).sum() / hidden.sum()


class Recurrent(nn.Module):
    def __init__(self, dropout=0.5):
        super().__init__()
        self.layer = nn.LSTM(8, 16, 2, dropout=dropout)

    def forward(self, x):
        return self.layer(x)[0]


class StandIn:
    """Draws again what it drew only where cuDNN is off, as its recurrent networks do on a GPU."""

    def __init__(self):
        self.drawn = 0

    def __call__(self, output):
        if not torch.backends.cudnn.enabled:
            return output
        self.drawn += 1
        return output * self.drawn


class Anew:
    """Goes on from what it drew last, and begins anew where torch's random state was set, as cuDNN's recurrent networks do on a GPU."""

    def __init__(self):
        self.ended, self.drawn = None, 0

    def __call__(self, output):
        if not torch.backends.cudnn.enabled:
            return output
        goes_on = self.ended is not None and torch.equal(self.begun, self.ended)
        self.drawn = self.drawn + 1 if goes_on else 1
        self.ended = torch.get_rng_state()
        return output * self.drawn

    def begin(self):
        self.begun = torch.get_rng_state()


class Redraws(CutCase):
    def test_by_a_generator_of_the_modules_own_are_others(self):
        self.refused("cannot be drawn again in the backward pass", OwnGenerator, mean_square, rows)

    def test_dropout_between_recurrent_layers(self):
        self.train(Recurrent, mean_square, lambda: torch.randn(12, 64, 8), 16)
        self.assertEqual(self.warned, ["random_draws"])

    def test_those_that_only_cudnn_draws_anew_are_drawn_without_it(self):
        ran = []

        class Stands(Recurrent):
            draws = StandIn()

            def forward(self, x):
                ran.append((x.shape[1], torch.backends.cudnn.enabled))
                output = super().forward(x)
                return self.draws(output) if self.training else output

        self.assertTrue(torch.backends.cudnn.enabled)
        with self.without_looks():
            self.train(Stands, mean_square, lambda: torch.randn(12, 64, 8), 16, steps=1)
        self.assertIn("cudnn", self.warned)
        self.assertEqual([on for samples, on in ran if samples == 16], [False] * 7)
        self.assertTrue(torch.backends.cudnn.enabled)
        # Without dropout nothing of that is cuDNN's.
        self.refused("cannot be drawn again", lambda: Stands(0.0), mean_square, lambda: torch.randn(12, 64, 8))

    def test_those_that_cudnn_goes_on_with_are_drawn_without_it(self):
        class Goes(Recurrent):
            draws = Anew()

            def forward(self, x):
                self.draws.begin()
                output = super().forward(x)
                return self.draws(output) if self.training else output

        self.train(Goes, mean_square, lambda: torch.randn(12, 64, 8), 16, steps=1)
        self.assertIn("cudnn", self.warned)

    def test_a_loss_of_the_module_on_what_it_draws_is_that_of_its_micro_batches(self):
        for make in (Diffusion, Masked):
            with self.subTest(make.__name__):
                torch.manual_seed(0)
                model, x = make(), rows()
                kept = torch.optim.SGD(model.parameters(), lr=0.1)

                def loss(part, model=model):
                    found = model(part)
                    return found[0] if isinstance(found, tuple) else found

                self.cut.engage(16, 64)
                count = self.cut.count
                torch.manual_seed(5)
                found = loss(x)
                found.backward()
                self.assertEqual((self.cut.count, len(kept.state)), (count + 1, 0))
                cut = [parameter.grad.clone() for parameter in model.parameters()]
                self.cut.release()
                model.zero_grad()
                torch.manual_seed(5)
                parts = [loss(part) / 4 for part in x.split(16)]
                self.assertLess((found - sum(parts)).abs().item(), 1e-9)
                sum(parts).backward()
                for one, parameter in zip(cut, model.parameters()):
                    self.assertLess((one - parameter.grad).norm() / parameter.grad.norm(), 1e-9)

    def test_a_loss_of_the_module_on_samples_that_it_mixes_is_refused(self):
        for seed in range(20):
            torch.manual_seed(seed)
            x = rows()
            self.refused("cannot be seen", lambda: Diffusion(mixes=True), lambda m, x: m(x), lambda x=x: x)

    def test_a_mean_over_as_many_parts_as_it_draws_is_refused(self):
        for seed in range(20):
            torch.manual_seed(seed)
            x = rows()
            self.refused("cannot be seen", MaskedByChance, lambda m, x: m(x), lambda x=x: x)

    @unittest.skipUnless(GPU, "no GPU")
    def test_gradients_on_a_gpu_are_those_of_the_numbers_that_were_drawn(self):
        torch.manual_seed(0)
        model = Recurrent().cuda()
        kept = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(12, 64, 8, device="cuda")
        self.cut.engage(16, 64)
        torch.manual_seed(5)
        model(x).pow(2).mean().backward()
        self.assertEqual((self.cut.count, len(kept.state)), (1, 0))
        cut = [parameter.grad.clone() for parameter in model.parameters()]
        self.cut.release()
        model.zero_grad()
        torch.manual_seed(5)
        # A later torch may draw them again with cuDNN, too.
        with torch.backends.cudnn.flags(enabled="cudnn" not in self.warned):
            torch.cat([model(part.contiguous()) for part in x.split(16, 1)], 1).pow(2).mean().backward()
        for one, parameter in zip(cut, model.parameters()):
            self.assertLess((one - parameter.grad).norm() / parameter.grad.norm(), 1e-9)


if __name__ == "__main__":
    unittest.main()
