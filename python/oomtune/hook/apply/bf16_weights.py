"""The weights of the trained models held in bf16, and with them their gradients and the optimizer's state. Only matrices: biases and
norms take next to nothing, and stay as they are. Needs autocast, under which single and half precision meet."""

from __future__ import annotations

from ..watch.world import world_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch
    from ..watch.models import Modules
    from ..watch.optimizers import Optimizers


class Bf16Weights:
    def __init__(self, torch: Torch, modules: Modules, optimizers: Optimizers) -> None:
        self._torch = torch
        self._modules = modules
        self._optimizers = optimizers
        self._narrowed: list[Any] = []

    def why_not(self) -> str | None:
        """None: it can be turned on."""
        if world_size(self._torch) > 1:
            return "what several ranks exchange was made for single precision"
        return None if self._matrices() else "no weights are matrices in single precision"

    def _matrices(self) -> list[Any]:
        torch = self._torch
        found = {id(each): each for root in self._modules.roots() for each in root.parameters()}
        return [
            each
            for each in found.values()
            if type(each) is torch.nn.Parameter and each.dim() > 1 and each.dtype == torch.float32
        ]

    def switch(self, wanted: bool) -> None:
        torch = self._torch
        if wanted == bool(self._narrowed):
            return
        changed = self._matrices() if wanted else self._narrowed
        dtype = torch.bfloat16 if wanted else torch.float32
        for parameter in changed:
            parameter.grad = None
            parameter.data = parameter.data.to(dtype)
        self._narrowed = changed if wanted else []
        # As torch does for the state of a checkpoint: it has the type of its weight.
        ours = {id(parameter) for parameter in changed}
        for optimizer in self._optimizers.known():
            for parameter, state in optimizer.state.items():
                if id(parameter) in ours:
                    optimizer.state[parameter] = {name: self._cast(name, each, dtype) for name, each in state.items()}

    def _cast(self, name: str, value: Any, dtype: Any) -> Any:
        floating = isinstance(value, self._torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floating and name != "step" else value
