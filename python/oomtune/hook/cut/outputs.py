"""The whole call's output, made of the outputs of its micro-batches."""

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
    """One row, or the same number of rows, for each sample along a dimension."""

    def __init__(self, dim: int, factor: int) -> None:
        self.dim = dim
        #: Rows of the output for each sample.
        self.factor = factor

    def slice(self, tensor: Tensor, start: int, stop: int) -> Tensor:
        """The output's rows, or their gradients, of samples start:stop."""
        return tensor.narrow(self.dim, start * self.factor, (stop - start) * self.factor)


class WeightedSum:
    """No row for each sample: the micro-batches' values are added up, each by its weight. `names`: reductions that may hold."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class Constant:
    """Every micro-batch returns the same."""


class Outputs:
    """`weights`: of each output that is a WeightedSum, by number, the weight of each micro-batch."""

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
        #: The leaves of the output; empty: no micro-batch was added yet.
        self.leaves: Leaves = []

    def add(self, leaves: Leaves, place: int) -> None:
        """The leaves of one micro-batch's output."""
        if len(leaves) != len(self._joins):
            raise Uncuttable("it does not always return the same structure")
        if not self.leaves:
            self.leaves = [self._allocated(leaf, join) for leaf, join in zip(leaves, self._joins)]
        start, stop = self._parts[place]
        for number, (leaf, join) in enumerate(zip(leaves, self._joins)):
            if isinstance(join, Concatenated):
                target = join.slice(self.leaves[number], start, stop)
                if not isinstance(leaf, self._torch.Tensor) or leaf.shape != target.shape:
                    raise Uncuttable("its outputs do not join along the samples")
                target.copy_(leaf)
            elif isinstance(join, WeightedSum):
                weight = self._weights[number][place]
                if weight:
                    self.leaves[number] = self.leaves[number] + leaf * weight

    def _allocated(self, leaf: Any, join: Join) -> Any:
        """Memory for the whole output, taken after the first micro-batch: the others are not kept beside it."""
        if isinstance(join, Concatenated):
            shape = list(leaf.shape)
            shape[join.dim] = self._dims.count * join.factor
            return leaf.new_empty(shape)
        if isinstance(join, WeightedSum):
            return self._torch.zeros_like(leaf) if isinstance(leaf, self._torch.Tensor) else 0.0
        return leaf

    def stand_in(self, place: int, other: int) -> None:
        """Puts rows of the micro-batch `other` in place of one that is not run."""
        start, stop = self._parts[place]
        first, last = self._parts[other]
        length = min(stop - start, last - first)
        for leaf, join in zip(self.leaves, self._joins):
            if isinstance(join, Concatenated):
                join.slice(leaf, start, stop).zero_()
                join.slice(leaf, start, start + length).copy_(join.slice(leaf, first, first + length))
