"""Keeps activations in host memory from the forward to the backward pass."""

from __future__ import annotations

from .streamed_activations import StreamedActivations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Torch
    from ..watch.models import Modules

#: Copies run beside the computation, and weights stay where they are; else each is waited for, as torch's own `save_on_cpu` does.
#: No GPU has run it yet: to be turned on when bench/rungs/run.mjs has shown what it costs there.
STREAMED = False


class Offload:
    """`recomputes()`: see Rung."""

    def __init__(self, torch: Torch, recomputes: Callable[[], bool], modules: Modules) -> None:
        self._torch = torch
        self._recomputes = recomputes
        self._modules = modules
        self._streamed = StreamedActivations(torch)
        self.inside = False
        self.on = False

    def around(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        # What a checkpoint recomputes in the backward pass is used at once.
        if not self.on or self.inside or self._recomputes() or not self._torch.is_grad_enabled():
            return call(*args, **kwargs)
        self.inside = True
        try:
            with self._hooks():
                return call(*args, **kwargs)
        finally:
            self.inside = False

    def _hooks(self) -> Any:
        if not STREAMED:
            return self._torch.autograd.graph.save_on_cpu(pin_memory=True)
        return self._streamed.hooks(each for root in self._modules.roots() for each in root.parameters())
