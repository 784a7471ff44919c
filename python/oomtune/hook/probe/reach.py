"""Whether the sizes of a loader's batches reach the model."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import contextlib

from ..cut.pytree import tree_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    from ..cut.model_calls import ModelCalls
    from ..types import Module, Torch

    Shapes = List[List[Tuple[int, ...]]]


class Reach:
    """Compares what the model is called with in a step of one size and in one of another. Where a loader's batches have one sample
    each, that may be a whole batch of the data set's own making: the script then takes the first of them, whatever number there are."""

    def __init__(self, torch: Torch, calls: ModelCalls) -> None:
        self._torch = torch
        self._calls = calls
        #: The shapes of the tensors of each call in this step.
        self._shapes: Shapes = []
        self._first: tuple[int, Shapes] | None = None

    def watch(self) -> None:
        self._calls.install()
        self._calls.before = self._before_call

    def unwatch(self) -> None:
        if self._calls.before == self._before_call:
            self._calls.before = None

    def step_done(self, size: int) -> int | None:
        """A step of batches of `size` is done. Returns the rows of the model's call if they were the same at another size, else None."""
        shapes, self._shapes = self._shapes, []
        if self._calls.before != self._before_call or not shapes:
            return None
        if self._first is None:
            self._first = size, shapes
        elif self._first[0] != size:
            self.unwatch()
            first = next((shape for call in shapes for shape in call if shape), None)
            if shapes == self._first[1] and first is not None:
                return first[0]
        return None

    def _before_call(self, module: Module, args: Any, kwargs: Any) -> Any:
        if not self._calls.begins(module):
            return None
        tensors = (leaf for leaf in tree_leaves(self._torch, (args, kwargs)) if isinstance(leaf, self._torch.Tensor))
        self._shapes.append([tuple(leaf.shape) for leaf in tensors])
        return args, kwargs, contextlib.nullcontext()  # the calls inside are its own affair
