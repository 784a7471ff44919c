"""What the first forward passes of the trained models show, where micro-batches are made outside of the model: that they draw random numbers,
as dropout and noise do, and that they move what the model keeps, as a codebook that follows its samples does."""

from __future__ import annotations

from ..cut.cut_context import DIFFERENCES
from ..cut.moved_buffers import MovedBuffers
from ..cut.written_weights import Weights
from ..watch.rng_state import RngState, cuda_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Module, Torch


MOVED = "The model keeps values of its own that its forward pass moves (%s): each micro-batch moves them, and not the whole batch once."
#: Forward passes that are looked at: what draws or moves does so in its first ones.
MOST_PASSES = 16


class FirstPasses:
    """`warn(code, message)` is called once for each of the two."""

    def __init__(self, torch: Torch, warn: Callable[[str, str], None]) -> None:
        self._torch = torch
        self._warn = warn
        self._left = MOST_PASSES
        #: A pass that is looked at runs: those of its parts are in it.
        self._inside = False
        self._drew = self._moved = False

    def around(self, module: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        looks = self._left and not self._inside and module.training and self._torch.is_grad_enabled()
        if not looks or (self._drew and self._moved):
            return call(*args, **kwargs)
        before = self._tried(lambda: _Before(self._torch, module))
        self._left = max(0, self._left - 1)
        self._inside = True
        try:
            output = call(*args, **kwargs)
        finally:
            self._inside = False
        if before is not None:
            self._tell(self._tried(before.drew) or False, self._tried(before.moved) or [])
        return output

    def _tried(self, look: Callable[[], Any]) -> Any:
        """What the look finds. What cannot be looked at (a tensor of torch.func, weights whose storage is taken away) is no fault in the
        script, whose step goes on: nothing is told of it then, and nothing looked at any more."""
        try:
            return look()
        except Exception:
            self._left = 0
            return None

    def _tell(self, drew: bool, moved: list[str]) -> None:
        if drew and not self._drew:
            self._drew = True
            self._warn("random_draws", DIFFERENCES["random_draws"])
        if moved and not self._moved:
            self._moved = True
            self._warn("buffers", MOVED % ", ".join(moved[:3]))


class _Before:
    """What a forward pass may draw from or move, as it is now."""

    def __init__(self, torch: Torch, module: Module) -> None:
        self._torch = torch
        self._devices = cuda_devices(torch, module.parameters())
        self._random = RngState(torch, self._devices)
        modules = list(module.modules())
        self._buffers, self._weights = MovedBuffers(torch, modules), Weights(torch, modules)

    def drew(self) -> bool:
        return RngState(self._torch, self._devices) != self._random

    def moved(self) -> list[str]:
        return self._buffers.names() or self._weights.written()
