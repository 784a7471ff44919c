"""The cut with loss scalers, and with the random numbers of devices."""

import unittest
from unittest import mock

import torch
from cut_case import CutCase, mean_square, net, rows
from support import run
from torch import nn

INSIDE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()), nn.Linear(32, 4)
    def forward(self, x, y):
        out = self.head(checkpoint(self.body, x, use_reentrant=False)).float()
        return nn.functional.mse_loss(out, y), out
model = Inside()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(320, 8), torch.randn(320, 4)), batch_size=32):
    loss, out = model(x, y)
    assert out.dtype == torch.float32
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(*[p.norm().item() for p in model.parameters()])
"""


class Rungs(unittest.TestCase):
    def test_mixed_precision_and_checkpoints_with_a_loss_of_the_module_itself(self):
        def norms(**env):
            result = run(INSIDE, "apply", **env)
            self.assertEqual(result.status, 0, result.errors)
            return [float(word) for word in result.output.split()]

        alone = norms()
        mixed = {"OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation,amp", "OOMTUNE_AMP": "bf16", "OOMTUNE_MICRO_BATCH": 8}
        tuned = norms(OOMTUNE_ACCUMULATION=4, **mixed)
        self.assertNotEqual(alone, tuned)
        for one, other in zip(alone, tuned):
            self.assertAlmostEqual(one, other, delta=1e-2 * max(alone))


SCALES = hasattr(torch.amp, "GradScaler")


class Scalers(CutCase):
    def scaled(self, micro, first):
        """(weights, the scale after each step) of a loop as torch's own examples have it."""
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        model = nn.Sequential(net(), nn.LayerNorm(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler, scales = torch.amp.GradScaler("cpu", init_scale=first, growth_interval=3), []
        if micro:
            self.cut.engage(micro, 64)
        for step in range(8):
            torch.manual_seed(step + 1)
            x = rows()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(x) - x[:, :4]).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        self.cut.release()
        return [parameter.detach().clone() for parameter in model.parameters()], scales

    @unittest.skipUnless(SCALES, "this torch (%s) has no loss scaler for the CPU" % torch.__version__)
    def test_fp16_with_a_scaler(self):
        bare, scales = self.scaled(None, 2.0**10)
        tuned, same = self.scaled(16, 2.0**10)
        self.assertGreater(self.cut.count, 0)
        self.assertEqual(scales, same)
        self.assertEqual(self.warned, ["fp16"])
        for one, other in zip(bare, tuned):
            self.assertLess(((one - other).norm() / one.norm().clamp_min(1e-6)).item(), 5e-3)

    @unittest.skipUnless(SCALES, "this torch (%s) has no loss scaler for the CPU" % torch.__version__)
    def test_a_scale_that_overflows(self):
        _, scales = self.scaled(None, 2.0**22)
        _, tuned = self.scaled(16, 2.0**22)
        self.assertLess(scales[1], scales[0])
        self.assertEqual(scales[:3], tuned[:3])
        # What overflows for the whole batch need not for a quarter of it.
        self.assertLessEqual(scales[5], tuned[5])
        self.assertLessEqual(tuned[5], 4 * scales[5])


class RoundsByRows(nn.Module):
    """Enters autocast by itself. In half precision what it gives depends on how many rows there are, as kernels choose by that."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.layer(x)
        return out.float() * (1 + 1e-3 * (len(x) % 7)) if out.dtype == torch.bfloat16 else out


class Autocast(CutCase):
    def test_that_a_forward_pass_enters_is_off_while_samples_are_compared(self):
        torch.set_default_dtype(torch.float32)
        self.train(RoundsByRows, mean_square, rows, 16)
        self.assertEqual(self.cut.count, 3)


class Devices(CutCase):
    def test_a_devices_random_numbers_are_those_of_the_forward_pass(self):
        # A stand-in for a CUDA device's generator: there is no device here.
        generator = torch.Generator()

        class Dropping(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

            def forward(self, x):
                x = torch.tanh(self.first(x))
                if self.training:
                    x = x * (torch.rand(x.shape, generator=generator) < 0.5)
                return self.last(x)

        torch.manual_seed(0)
        model, x = Dropping(), rows()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with mock.patch("oomtune.hook.cut.plan.cuda_devices", lambda torch, tensors: [0]), mock.patch.object(
            torch.cuda, "get_rng_state", lambda device: generator.get_state()
        ), mock.patch.object(torch.cuda, "set_rng_state", lambda state, device: generator.set_state(state)):
            self.cut.engage(16, 64)
            generator.manual_seed(7)
            model(x).pow(2).mean().backward()
            after = generator.get_state()
        self.cut.release()
        self.assertEqual(self.cut.count, 1)
        cut = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        generator.manual_seed(7)
        torch.cat([model(part) for part in x.split(16)]).pow(2).mean().backward()
        self.assertTrue(torch.equal(after, generator.get_state()))
        for one, parameter in zip(cut, model.parameters()):
            self.assertLess((one - parameter.grad).norm() / parameter.grad.norm(), 1e-12)


if __name__ == "__main__":
    unittest.main()
