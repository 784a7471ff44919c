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
        #: Of the forward pass and its graph, which have to be gone with the outputs.
        self._saved: list[weakref.ref[Any]] = []
        #: Something is computed in less than single precision.
        self.coarse = False

    def run(self, forward: Callable[[Leaves], Tree], inputs: Leaves) -> Tree:
        """Returns the forward pass's output."""

        def pack(tensor: Tensor) -> _Holder:
            self.coarse = self.coarse or tensor.dtype in (self._torch.float16, self._torch.bfloat16)
            # A node that holds its own output would be a reference cycle.
            holder = _Holder(tensor.detach())
            self._saved.append(weakref.ref(holder))
            return holder

        def unpack(holder: _Holder) -> Tensor:
            return holder.tensor

        with self._torch.enable_grad(), self._torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return forward(inputs)

    def foreign(self, outputs: Iterable[Tensor], known: Collection[int], inputs: Leaves) -> tuple[bool, bool]:
        """(whether the graph of the outputs has a leaf from outside: none of the `known`, by id, nor one that the forward pass has
        made of its `inputs`; whether it has reentrant checkpointing)."""
        leaves, reentrant = _leaves(outputs)
        others = [leaf for leaf in leaves if id(leaf) not in known]
        given = {_storage(each) for each in inputs if isinstance(each, self._torch.Tensor)} - {None}
        if any(_storage(leaf) not in given for leaf in others):
            return True, reentrant
        self._saved += [weakref.ref(leaf) for leaf in others]
        return False, reentrant

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


def _leaves(outputs: Iterable[Tensor]) -> tuple[list[Any], bool]:
    """(leaves of the outputs' graph; whether it has reentrant checkpointing)."""
    outputs = list(outputs)
    found: list[Any] = [output for output in outputs if output.grad_fn is None]
    pending: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set()
    reentrant = False
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        reentrant = reentrant or type(node).__name__ == "CheckpointFunctionBackward"
        pending.extend(following for following, _ in node.next_functions if following is not None)
    return found, reentrant


def _storage(tensor: Any) -> int | None:
    """Where its values are; None: it has no such place."""
    try:
        return getattr(tensor, "untyped_storage", tensor.storage)().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # a sparse tensor, a tensor of a class of its own
        return None
