"""Tells a training loop from others: gradients are on, an optimizer is there, and its model is in training mode."""

import functools
import weakref


class Training:
    def __init__(self, torch, optimizers):
        self._torch = torch
        self._optimizers = optimizers
        self._depth = 0
        self._switched = {}

    def install(self):
        """`train()` and `eval()` both end here; only the outermost call of a nest is the script's own."""
        kind = self._torch.nn.Module
        original = kind.train
        watch = self

        @functools.wraps(original)
        def train(self, mode=True):
            if watch._depth:
                return original(self, mode)
            watch._depth += 1
            try:
                return original(self, mode)
            finally:
                watch._depth -= 1
                watch._switched[id(self)] = weakref.ref(self)

        kind.train = train

    def likely(self):
        torch = self._torch
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled() or len(self._optimizers) == 0:
            return False
        modules = list(self._trained())
        return not modules or any(module.training for module in modules)

    def evaluating(self):
        """The trained model was switched to evaluation (whether or not gradients are off)."""
        modules = list(self._trained())
        return bool(modules) and not any(module.training for module in modules)

    def _trained(self):
        ours = {id(parameter) for parameter in self._optimizers.parameters()}
        for key, reference in list(self._switched.items()):
            module = reference()
            if module is None:
                del self._switched[key]
            elif any(id(parameter) in ours for parameter in module.parameters()):
                yield module
