"""Joins the outputs of the micro-batches into the whole call's output."""

from __future__ import annotations

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence, Union

    from ..types import Leaves, Span, Tensor, Torch
    from .batch_dims import BatchDims

    #: How one output of the micro-batches becomes that of the whole call.
    Join = Union["Concatenated", "WeightedSum", "Constant"]


class Concatenated:
    """Along `dim` the output has `factor` rows for each sample."""

    def __init__(self, dim: int, factor: int) -> None:
        self.dim = dim
        #: Rows of the output for each sample.
        self.factor = factor

    def slice(self, tensor: Tensor, start: int, stop: int) -> Tensor:
        """The rows of samples start:stop, of an output or its gradient."""
        return tensor.narrow(self.dim, start * self.factor, (stop - start) * self.factor)


class WeightedSum:
    """No row per sample: the weighted sum of the micro-batches' values. `names`: reductions that may hold."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class Constant:
    """Every micro-batch returns the same."""


class Outputs:
    """`weights`: by number of each output that is a WeightedSum, the weight of each micro-batch."""

    def __init__(
        self,
        torch: Torch,
        joins: Sequence[Join],
        dims: BatchDims,
        parts: Sequence[Span],
        weights: dict[int, list[float]],
    ) -> None:
        self._torch = torch
        self._joins = joins
        self._dims = dims
        self._parts = parts
        self._weights = weights
        #: The output's leaves; empty until the first micro-batch was added.
        self.leaves: Leaves = []

    def add(self, leaves: Leaves, index: int) -> None:
        """Adds the leaves of one micro-batch's output."""
        if len(leaves) != len(self._joins):
            raise Uncuttable("it does not always return the same structure")
        if not self.leaves:
            self.leaves = [self._allocated(leaf, join) for leaf, join in zip(leaves, self._joins)]
        start, stop = self._parts[index]
        for number, (leaf, join) in enumerate(zip(leaves, self._joins)):
            if isinstance(join, Concatenated):
                target = join.slice(self.leaves[number], start, stop)
                if not isinstance(leaf, self._torch.Tensor) or leaf.shape != target.shape:
                    raise Uncuttable("its outputs do not join along the samples")
                target.copy_(leaf)
            elif isinstance(join, WeightedSum):
                weight = self._weights[number][index]
                if weight:
                    self.leaves[number] = self.leaves[number] + leaf * weight

    def _allocated(self, leaf: Any, join: Join) -> Any:
        """Allocates the whole output after the first micro-batch, so that the others need no memory besides it."""
        if isinstance(join, Concatenated):
            shape = list(leaf.shape)
            shape[join.dim] = self._dims.count * join.factor
            return leaf.new_empty(shape)
        if isinstance(join, WeightedSum):
            return self._torch.zeros_like(leaf) if isinstance(leaf, self._torch.Tensor) else 0.0
        return leaf

    def stand_in(self, index: int, other: int) -> None:
        """Copies rows of the micro-batch `other` in place of one that does not run."""
        start, stop = self._parts[index]
        first, last = self._parts[other]
        length = min(stop - start, last - first)
        for leaf, join in zip(self.leaves, self._joins):
            if isinstance(join, Concatenated):
                join.slice(leaf, start, stop).zero_()
                join.slice(leaf, start, start + length).copy_(join.slice(leaf, first, first + length))
