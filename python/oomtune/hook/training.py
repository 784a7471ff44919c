"""Tells a training loop from others: gradients are on, an optimizer is there, and its model is in training mode."""

import functools
import weakref

#: Optimizer steps that tell in which mode the script trains.
FEW = 3


class Training:
    def __init__(self, torch, optimizers):
        self._torch = torch
        self._optimizers = optimizers
        self._depth = 0
        self._switched = {}
        self._trains_in_eval = False
        self._steps_looked_at = 0

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

    def stepped(self):
        """The optimizer has stepped. A model that is trained in evaluation mode tells nothing by that mode."""
        if self._steps_looked_at < FEW:
            self._steps_looked_at += 1
            self._trains_in_eval = self._trains_in_eval or self.evaluating()

    def switches(self, module):
        """Whether the module is one that is trained, and switched to evaluation for evaluating only."""
        if self._trains_in_eval:
            return False
        ours = {id(parameter) for parameter in self._optimizers.parameters()}
        return any(id(parameter) in ours for parameter in module.parameters())

    def _trained(self):
        ours = {id(parameter) for parameter in self._optimizers.parameters()}
        for key, reference in list(self._switched.items()):
            module = reference()
            if module is None:
                del self._switched[key]
            elif any(id(parameter) in ours for parameter in module.parameters()):
                yield module
