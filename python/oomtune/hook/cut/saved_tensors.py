"""What a forward pass saves for the backward pass: shows, before the first cut call, gradients that the cut would lose."""

from __future__ import annotations

import gc
import weakref

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterable, Sequence

    from ..types import Leaves, Tensor, Torch, Tree

LEARNS = "it uses a tensor that learns and is neither an input nor a parameter of its own"


class SavedTensors:
    """Runs a forward pass and records the tensors that it saves for the backward pass."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: Of the forward pass and its graph, which have to be gone with the outputs.
        self._saved: list[weakref.ref[Any]] = []
        #: Of its leaves that are neither parameters nor made of inputs.
        self._leaves: list[weakref.ref[Any]] = []
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

    def graph(self, outputs: Iterable[Tensor], known: Collection[int], inputs: Leaves) -> bool:
        """Notes the leaves of the outputs' graph that are none of the `known`, by id. Returns whether it has reentrant checkpointing. Raises
        Uncuttable if the script could see what gradient such a leaf gets, though the forward pass has made it."""
        outputs = list(outputs)
        leaves, reentrant = _leaves(outputs)
        others = [leaf for leaf in leaves if id(leaf) not in known]
        given_out = {id(output) for output in outputs}
        if any(id(leaf) in given_out or _hooked(leaf) for leaf in others):
            raise Uncuttable(LEARNS + "; one that its forward pass makes may, where it neither returns nor hooks that")
        given = {_storage(each) for each in inputs if isinstance(each, self._torch.Tensor)} - {None}
        for leaf in others:
            (self._saved if _storage(leaf) in given else self._leaves).append(weakref.ref(leaf))
        return reentrant

    def check_released(self) -> None:
        """To be called when the outputs are gone. Raises Uncuttable if something else still holds such a leaf, which then is none that the
        forward pass has made for itself, or the graph: features of a hook, a part of the loss on the module."""
        if self._is_held(self._leaves):
            raise Uncuttable(LEARNS)
        if self._is_held(self._saved):
            raise Uncuttable(
                "something besides its outputs is kept that carries gradients (by a hook, or on the module)"
            )

    def _is_held(self, references: Sequence[weakref.ref[Any]]) -> bool:
        if any(reference() is not None for reference in references):
            gc.collect()
        return any(reference() is not None for reference in references)


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


def _hooked(leaf: Any) -> bool:
    return bool(leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None))


def _storage(tensor: Any) -> int | None:
    """Where its values are; None: it has no such place."""
    try:
        return getattr(tensor, "untyped_storage", tensor.storage)().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # a sparse tensor, a tensor of a class of its own
        return None
