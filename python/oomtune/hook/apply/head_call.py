"""A call of a model's head (its last linear layer) that has not been computed, and views of its output."""

from __future__ import annotations

import weakref

from .logit_changes import changed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Module, Tensor, Torch
    from .logit_changes import Changes


class Head:
    """A call of the head. `refuse(why)`: the logits are asked for after the weights have changed; does not return."""

    def __init__(
        self,
        torch: Torch,
        module: Module,
        dtype: Any,
        used: Callable[[str], None],
        chunked: Callable[[], None],
        refuse: Callable[[str], None],
    ) -> None:
        self.torch = torch
        self.weight: Tensor = module.weight
        self.bias: Tensor | None = module.bias
        #: Of the layer's output.
        self.dtype = dtype
        self.used = used
        self.chunked = chunked
        self.refuse = refuse
        self._versions = self._now()

    @property
    def classes(self) -> int:
        return self.weight.shape[0]

    def _now(self) -> tuple[int, ...]:
        return tuple(tensor._version for tensor in (self.weight, self.bias) if tensor is not None)

    def output(self, hidden: Tensor, grad: bool, name: str) -> Tensor:
        if self._versions != self._now():
            self.refuse("the script uses the logits (%s) after its weights have changed" % name)
        torch = self.torch
        weight, bias = self.weight.to(self.dtype), None if self.bias is None else self.bias.to(self.dtype)
        with torch.set_grad_enabled(grad), torch.autocast(hidden.device.type, enabled=False):
            return torch.nn.functional.linear(hidden.to(self.dtype), weight, bias)


class Source:
    """What a lazy tensor stands for: `hidden`, whose last dimension the head maps to classes. `moved`: the classes are dimension 1;
    `grad`: gradients flow; `base`: what it is made of; `changes`: to each logit."""

    def __init__(
        self,
        head: Head,
        hidden: Tensor,
        dtype: Any,
        grad: bool,
        moved: bool = False,
        base: Source | None = None,
        changes: Changes = (),
    ) -> None:
        self._base = base
        self.head = head
        self.hidden = hidden
        self.dtype = dtype
        self.grad = grad
        self.moved = moved
        self.changes = changes
        self._full: Tensor | None = None
        #: Views of it that are still there, and how each is made of the output.
        self.views: list[tuple[weakref.ref[Source], Call]] = []

    def shape(self) -> tuple[int, ...]:
        shape = (*self.hidden.shape[:-1], self.head.classes)
        return (shape[0], shape[-1], *shape[1:-1]) if self.moved else shape

    def full(self, name: str) -> Tensor:
        """The real output, computed once; views of it share its memory. `name`: of the function that asks."""
        if self._full is None and self._base is not None:
            self._base.full(name)
        if self._full is None:
            torch, output = self.head.torch, self.head.output(self.hidden, self.grad, name)
            with torch.set_grad_enabled(self.grad):
                self._become(changed(torch, output.to(self.dtype), self.changes))
        return self._full

    def _become(self, full: Tensor) -> None:
        self._full = full
        for reference, made in self.views:
            view = reference()
            if view is not None:
                with self.head.torch.set_grad_enabled(view.grad):
                    view._become(made(full))
        self.views = []

    def known(self) -> bool:
        return self._full is not None


def autocast_dtype(torch: Torch, device: str) -> Any:
    """None: autocast is off."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if device == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
