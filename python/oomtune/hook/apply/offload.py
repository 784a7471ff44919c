"""Keeps activations in host memory from the forward to the backward pass."""

from __future__ import annotations

import weakref

from ..cut.fsdp import is_sharded
from .streamed_activations import StreamedActivations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Module, Torch
    from ..watch.models import Modules


class Offload:
    """Copies run beside the computation, and weights stay where they are. Where those are sharded, their memory is taken away between uses, so that
    each copy is waited for (torch's own `save_on_cpu`). `recomputes()`: see Rung."""

    def __init__(self, torch: Torch, recomputes: Callable[[], bool], modules: Modules) -> None:
        self._torch = torch
        self._recomputes = recomputes
        self._modules = modules
        self._streamed = StreamedActivations(torch)
        self.inside = False
        self.on = False
        #: Each copy is waited for.
        self._waits = False
        #: The part of what a model saves that goes, the first of it, which the backward pass needs last; None: all.
        self._part: float | None = None
        #: Tensors that a forward pass of each model saves.
        self._saved: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()

    def possible(self) -> bool:
        return hasattr(self._torch.autograd.graph, "save_on_cpu")

    def takes_part(self) -> bool:
        """Whether a part can go by itself."""
        return self.possible() and not is_sharded(self._modules.all())

    def switch(self, wanted: bool, part: str) -> None:
        self.on = wanted
        self._waits = wanted and is_sharded(self._modules.all())
        self._part = float(part) if part else None
        self._saved.clear()

    def around(self, module: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        # What a checkpoint recomputes in the backward pass is used at once.
        if not self.on or self.inside or self._recomputes() or not self._torch.is_grad_enabled():
            return call(*args, **kwargs)
        self.inside = True
        try:
            if self._waits:
                with self._torch.autograd.graph.save_on_cpu(pin_memory=True):
                    return call(*args, **kwargs)
            return self._stream(module, call, *args, **kwargs)
        finally:
            self.inside = False

    def _stream(self, module: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        known = self._saved.get(module)
        # How many there are the first pass has to show: all of them go.
        most = None if self._part is None or known is None else round(self._part * known)
        weights = (each for root in self._modules.roots() for each in root.parameters())
        with self._streamed.hooks(weights, most):
            output = call(*args, **kwargs)
        self._saved[module] = max(known or 0, self._streamed.saved)
        return output
