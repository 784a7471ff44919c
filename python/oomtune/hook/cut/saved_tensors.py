"""What a forward pass saves for the backward pass: shows, before the first cut call, gradients that the cut would lose."""

from __future__ import annotations

import gc
import weakref

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterable

    from ..types import Leaves, Tensor, Torch, Tree


class SavedTensors:
    """Runs a forward pass and records the tensors that it saves for the backward pass."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._saved: list[weakref.ref[_Holder]] = []

    def run(self, forward: Callable[[Leaves], Tree], inputs: Leaves) -> Tree:
        """Returns the forward pass's output."""

        def pack(tensor: Tensor) -> _Holder:
            # A node that holds its own output would be a reference cycle.
            holder = _Holder(tensor.detach())
            self._saved.append(weakref.ref(holder))
            return holder

        def unpack(holder: _Holder) -> Tensor:
            return holder.tensor

        with self._torch.enable_grad(), self._torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return forward(inputs)

    def check_released(self) -> None:
        """To be called when the outputs are gone. Raises Uncuttable if something else still holds the graph: features of a hook,
        a part of the loss on the module."""
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
    """(whether the graph has a leaf that is not `known`, by id; whether it has reentrant checkpointing)."""
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
