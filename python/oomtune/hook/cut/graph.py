"""What a forward pass leaves behind its outputs: gradients that the cut would lose are seen before the first cut call."""

from __future__ import annotations

import gc
import weakref

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterable

    from ..types import Leaves, Tensor, Torch, Tree


class Saved:
    """Runs a forward pass and sees what of it is kept for the backward pass."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._saved: list[weakref.ref[_Holder]] = []

    def run(self, forward: Callable[[Leaves], Tree], inputs: Leaves) -> Tree:
        """What it returns."""

        def pack(tensor: Tensor) -> _Holder:
            # An output that its own node keeps would be a circle.
            holder = _Holder(tensor.detach())
            self._saved.append(weakref.ref(holder))
            return holder

        def unpack(holder: _Holder) -> Tensor:
            return holder.tensor

        with self._torch.enable_grad(), self._torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return forward(inputs)

    def check_released(self) -> None:
        """Once the outputs are gone. Raises Uncuttable where something besides them keeps the graph: a hook's features, a part
        of the loss on the module."""
        if any(holder() is not None for holder in self._saved):
            gc.collect()
            if any(holder() is not None for holder in self._saved):
                raise Uncuttable(
                    "something besides its outputs is kept that carries gradients (by a hook, or on the module)"
                )


class _Holder:
    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def leaves_of_graph(outputs: Iterable[Tensor], known: Collection[int]) -> tuple[bool, bool]:
    """(whether a leaf of the graph is none of `known`, given by id, whether reentrant checkpointing is in it)"""
    outputs = list(outputs)
    if any(output.grad_fn is None and id(output) not in known for output in outputs):
        return True, False
    pending: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set()
    reentrant = False
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in known:
            return True, reentrant
        reentrant = reentrant or type(node).__name__ == "CheckpointFunctionBackward"
        pending.extend(following for following, _ in node.next_functions if following is not None)
    return False, reentrant
