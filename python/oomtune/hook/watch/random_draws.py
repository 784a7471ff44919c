"""Whether the models that are trained draw random numbers in their forward passes, as dropout and noise do."""

from __future__ import annotations

from .rng_state import RngState, cuda_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Module, Torch


RANDOM_DRAWS = (
    "The model draws random numbers in its forward pass (dropout, noise): each micro-batch draws its own, of the same kind as "
    "those of the whole batch, and not the same numbers."
)
#: Forward passes that are looked at: what draws does so in its first ones.
MOST_PASSES = 16


class RandomDraws:
    """`warn(code, message)` is called once if a forward pass moves a generator's state."""

    def __init__(self, torch: Torch, warn: Callable[[str, str], None]) -> None:
        self._torch = torch
        self._warn = warn
        self._left = MOST_PASSES

    def around(self, module: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        if not self._left or not module.training or not self._torch.is_grad_enabled():
            return call(*args, **kwargs)
        devices = cuda_devices(self._torch, module.parameters())
        before = RngState(self._torch, devices)
        output = call(*args, **kwargs)
        # (a part of a model, inside of a call of the whole, may have told it meanwhile)
        if self._left:
            self._left -= 1
            if RngState(self._torch, devices) != before:
                self._left = 0
                self._warn("random_draws", RANDOM_DRAWS)
        return output
