"""Keeps what the backward pass will need in host memory: the last resort, when nothing else fits the device."""


class Offload:
    """`recomputes()`: whether a checkpoint makes a part of a forward pass again."""

    def __init__(self, torch, recomputes):
        self._torch = torch
        self._recomputes = recomputes
        self.inside = False
        self.on = False

    def around(self, call, *args, **kwargs):
        # What a checkpoint makes again in the backward pass is used at once.
        if not self.on or self.inside or self._recomputes() or not self._torch.is_grad_enabled():
            return call(*args, **kwargs)
        self.inside = True
        try:
            with self._torch.autograd.graph.save_on_cpu(pin_memory=True):
                return call(*args, **kwargs)
        finally:
            self.inside = False
