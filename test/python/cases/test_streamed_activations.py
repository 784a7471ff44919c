"""What is saved for the backward pass waits elsewhere, for which copies stand where there is no GPU."""

import contextlib
import gc
import os
import sys
import types
import unittest
import unittest.mock
import weakref

import torch
from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.apply import host_copies, streamed_activations
from oomtune.hook.apply.offload import Offload
from oomtune.hook.apply.streamed_activations import StreamedActivations


class Copies:
    """Notes what is asked for; fails where something is used before its copy was waited for, or lost before it was done."""

    def __init__(self, torch, device):
        self.hosts = []
        self.under_way = set()
        self.brought = 0
        Copies.latest = self

    @staticmethod
    def on_device(tensor):
        return tensor.dtype != torch.float64

    def host_like(self, tensor):
        host = torch.empty_like(tensor, dtype=torch.float64)
        self.hosts.append(weakref.ref(host))
        return host

    def send(self, pairs):
        for host, tensor in pairs:
            host.copy_(tensor)
        return self._begun()

    def bring(self, tensors):
        self.brought += len(tensors)
        return [each.float() for each in tensors], self._begun()

    def _begun(self):
        self.under_way.add(len(self.hosts) + 1000 * self.brought)
        return max(self.under_way)

    def wait(self, copied):
        self.under_way.discard(copied)


class Streamed(unittest.TestCase):
    def setUp(self):
        for name, value in (("LARGE", 1), ("UNDER_WAY", 1)):
            patch = unittest.mock.patch.object(streamed_activations, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        patch = unittest.mock.patch.object(host_copies, "HostCopies", Copies)
        patch.start()
        self.addCleanup(patch.stop)
        torch.manual_seed(0)
        self.weight = torch.randn(8, 8, requires_grad=True)
        self.input = torch.randn(4, 8)
        self.streamed = StreamedActivations(torch)

    def gradient(self, function, passes=1, streamed=True):
        self.weight.grad = None
        hooks = self.streamed.hooks([self.weight]) if streamed else torch.enable_grad()
        with hooks:
            loss = function(self.input, self.weight).square().sum()
        for left in reversed(range(passes)):
            loss.backward(retain_graph=left > 0)
        return self.weight.grad

    FUNCTIONS = {
        "a chain": lambda x, w: ((x @ w).tanh() @ w).exp() @ w,
        "views of one memory": lambda x, w: torch.stack([each * each.tanh() for each in (x @ w).chunk(2, 1)]),
        "transposed": lambda x, w: (x @ w).t() @ (x @ w).tanh().t().contiguous().t(),
        "changed in place between two uses": lambda x, w: (x @ w).add_(1).mul_(2).tanh().add(1).exp(),
        "a weight twice": lambda x, w: (x @ w @ w.t()) @ w,
        "expanded": lambda x, w: (x @ w)[:1].expand(4, 8) * (x @ w),
    }

    def test_gradients_are_the_same(self):
        for name, function in self.FUNCTIONS.items():
            for room in (1, 300, 10**6):
                for passes in (1, 2):
                    with self.subTest(name, room=room, passes=passes):
                        with unittest.mock.patch.object(streamed_activations, "UNDER_WAY", room):
                            found = self.gradient(function, passes).clone()
                        self.assertTrue(torch.equal(found, self.gradient(function, passes, streamed=False)))

    def test_one_memory_goes_once_and_a_weight_never(self):
        with unittest.mock.patch.object(streamed_activations, "UNDER_WAY", 10**6):
            with self.streamed.hooks([self.weight]):
                middle = self.input @ self.weight
                kept = [middle * middle, middle.tanh(), middle.t().exp(), middle[1:] * 2 * middle[1:]]
            # The input, `middle`, its tanh and its exp.
            self.assertEqual([host().numel() for host in Copies.latest.hosts if host().numel() > 24], [32] * 4)
            del kept
        self.assertEqual(Copies.latest.brought, 0)

    def test_the_last_to_leave_are_kept_and_the_next_are_asked_for_before_they_are_used(self):
        with self.streamed.hooks([self.weight]):
            value = self.input
            for _ in range(6):
                value = (value @ self.weight).tanh()
        copies = Copies.latest
        self.assertEqual(copies.brought, 0)
        sent = len(copies.hosts)
        value.sum().backward()
        self.assertEqual(copies.brought, sent - 1)
        self.assertEqual(copies.under_way & {number for number in copies.under_way if number > 1000}, set())

    def test_nothing_is_kept_of_a_pass_that_has_no_backward_pass(self):
        for _ in range(2):
            with unittest.mock.patch.object(streamed_activations, "UNDER_WAY", 10**6), self.streamed.hooks(
                [self.weight]
            ):
                value = (self.input @ self.weight).tanh().exp()
            del value
            gc.collect()
            self.assertEqual([host() for host in Copies.latest.hosts if host() is not None], [])

    def test_small_and_partial_tensors_stay(self):
        with unittest.mock.patch.object(streamed_activations, "LARGE", 10**6):
            self.assertTrue(
                torch.equal(
                    self.gradient(self.FUNCTIONS["a chain"]), self.gradient(self.FUNCTIONS["a chain"], streamed=False)
                )
            )
        wide = torch.randn(100, 8)
        with self.streamed.hooks([self.weight]):
            saved = wide[:2] @ self.weight
        saved.sum().backward()
        hosts = [host() for host in Copies.latest.hosts] if hasattr(Copies, "latest") else []
        self.assertFalse(any(host is not None and host.numel() == 800 for host in hosts))

    def test_sharded_weights_whose_memory_goes_between_uses_are_waited_for(self):
        class FullyShardedDataParallel(torch.nn.Linear):
            pass

        def waits(module):
            modules = types.SimpleNamespace(all=lambda: [module], roots=lambda: [module])
            offload = Offload(torch, lambda: False, modules)
            offload.switch(True, "")
            waiting = contextlib.nullcontext()
            with unittest.mock.patch.object(torch.autograd.graph, "save_on_cpu", return_value=waiting) as waited:
                offload.around(module, module.forward, self.input).sum().backward()
            return waited.call_count

        self.assertEqual((waits(FullyShardedDataParallel(8, 8)), waits(torch.nn.Linear(8, 8))), (1, 0))


if __name__ == "__main__":
    unittest.main()
