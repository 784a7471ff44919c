"""Joins the outputs of the micro-batches into the whole call's output."""

from __future__ import annotations

import itertools

from .memory_order import empty_whole
from .refusal import UNPADDED, Uncuttable
from .row_group import RowGroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence, Union

    from ..types import Leaves, Tensor, Torch
    from .batch_dims import BatchDims

    #: How one output of the micro-batches becomes that of the whole call.
    Join = Union["Concatenated", "WeightedSum", "Constant"]


class Concatenated:
    """Along `dim` the output has `blocks` blocks of all samples, with `factor` rows for each in turn: sequences with the batch
    first that are flattened are one block with many rows for each sample, those with time first one block for each token."""

    def __init__(self, dim: int, factor: int, blocks: int = 1) -> None:
        self.dim = dim
        #: Rows of the output for each sample that follow one another.
        self.factor = factor
        self.blocks = blocks
        #: The memory order of the output; None: unknown.
        self.order: Sequence[int] | None = None
        #: How many dimensions the output has.
        self.dims = 0

    def rows(self, samples: int) -> int:
        """Rows of the output for so many samples."""
        return self.blocks * samples * self.factor

    def with_row(self, leaf: Any) -> Any:
        """What one sample alone gave, with the dimension of the samples if it lost that (by `squeeze()`)."""
        lost = getattr(leaf, "ndim", self.dims) == self.dims - 1
        return leaf.unsqueeze(self.dim) if lost and self.rows(1) == 1 else leaf

    def part(self, tensor: Tensor, group: RowGroup) -> Tensor:
        """The group's rows of an output or its gradient."""
        if self.blocks == 1:
            return group.of(tensor, self.dim, self.factor)
        return group.of(self._apart(tensor), self.dim + 1, self.factor).flatten(self.dim, self.dim + 1)

    def put(self, target: Tensor, group: RowGroup, value: Tensor) -> None:
        if self.blocks == 1:
            group.put(target, self.dim, value, self.factor)
        else:
            group.put(self._apart(target), self.dim + 1, self._apart(value), self.factor)

    def by_sample(self, tensor: Tensor) -> Tensor:
        """An output's numbers, in one row for each sample."""
        apart, dim = (tensor, self.dim) if self.blocks == 1 else (self._apart(tensor), self.dim + 1)
        return apart.movedim(dim, 0).reshape(apart.shape[dim] // self.factor, -1)

    def _apart(self, tensor: Tensor) -> Tensor:
        """A view with the blocks in a dimension of their own."""
        return tensor.unflatten(self.dim, (self.blocks, -1))


class WeightedSum:
    """No row per sample: the weighted sum of the micro-batches' values. `names`: reductions that may hold."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class Shared(WeightedSum):
    """The weights alone make it (a learned temperature): every micro-batch returns the same, and the last one has the gradient."""


class Constant:
    """Every micro-batch returns the same."""


class Outputs:
    """`weights`: by number of each output that is a WeightedSum, the weight of each micro-batch. `shortened`: by number of each
    output that is as wide as the inputs, and shorter where padding is left out, that dimension; `width`: of the inputs."""

    def __init__(
        self,
        torch: Torch,
        joins: Sequence[Join],
        dims: BatchDims,
        parts: Sequence[RowGroup],
        weights: dict[int, list[float]],
        shortened: dict[int, int],
        width: int,
    ) -> None:
        self._torch = torch
        self._joins = joins
        self._dims = dims
        self._parts = parts
        self._weights = weights
        self._shortened = shortened
        self._width = width
        #: The output's leaves; empty until the first micro-batch was added.
        self.leaves: Leaves = []
        #: By number of each output that is Shared: what the first micro-batch returned.
        self._shared: dict[int, Tensor] = {}
        #: For each further micro-batch whether it returned something else, on the device.
        self._differ: list[Tensor] = []

    def add(self, leaves: Leaves, index: int) -> None:
        """Adds the leaves of one micro-batch's output."""
        if len(leaves) != len(self._joins):
            raise Uncuttable("it does not always return the same structure")
        if not self.leaves:
            self.leaves = [
                self._allocated(leaf, join, self._shortened.get(number))
                for number, (leaf, join) in enumerate(zip(leaves, self._joins))
            ]
        group = self._parts[index]
        for number, (leaf, join) in enumerate(zip(leaves, self._joins)):
            if isinstance(join, Concatenated):
                target = self.leaves[number]
                if number in self._shortened and group.window is not None:
                    target = target.narrow(self._shortened[number], *group.window)
                wanted = list(target.shape)
                wanted[join.dim] = join.rows(len(group))
                shape = list(getattr(leaf, "shape", ()))
                if not isinstance(leaf, self._torch.Tensor) or shape != wanted:
                    raise Uncuttable(
                        "its outputs do not join along the samples as they did before (of shape %s for %d samples, not %s)"
                        % (tuple(shape), len(group), tuple(wanted))
                        + (UNPADDED if len(shape) == len(wanted) else "")
                    )
                join.put(target, group, leaf)
            elif isinstance(join, WeightedSum):
                if isinstance(join, Shared):
                    self._differ.append((leaf != self._shared.setdefault(number, leaf)).any())
                weight = self._weights[number][index]
                if weight:
                    self.leaves[number] = self.leaves[number] + leaf * weight

    def check(self) -> None:
        """After all micro-batches. Raises Uncuttable if what they were to share differs."""
        if self._differ and bool(self._torch.stack(self._differ).any()):
            raise Uncuttable("it returns a value that now depends on its samples, and did not before")

    def _allocated(self, leaf: Any, join: Join, shortened: int | None) -> Any:
        """Allocates the whole output after the first micro-batch, so that the others need no memory besides it."""
        if isinstance(join, Concatenated):
            shape = list(leaf.shape)
            shape[join.dim] = join.rows(self._dims.count)
            if shortened is None:
                return empty_whole(self._torch, leaf, shape, join.order)
            shape[shortened] = self._width
            return empty_whole(self._torch, leaf, shape, join.order).zero_()
        if isinstance(join, WeightedSum):
            return self._torch.zeros_like(leaf) if isinstance(leaf, self._torch.Tensor) else 0.0
        return leaf

    def stand_in(self, missing: Sequence[RowGroup], ran: RowGroup) -> None:
        """Copies rows of a micro-batch that ran in place of those of others, before it, that do not."""
        for target, source in self._copies(missing, ran):
            for leaf, join in zip(self.leaves, self._joins):
                if isinstance(join, Concatenated):
                    join.put(leaf, target, join.part(leaf, source))

    def _copies(self, missing: Sequence[RowGroup], ran: RowGroup) -> Iterator[tuple[RowGroup, RowGroup]]:
        def group(start: int, count: int = 1) -> RowGroup:
            return RowGroup(self._torch, range(start, start + count))

        if isinstance(ran.rows, range) and all(isinstance(each.rows, range) for each in missing):
            # They follow one another: each copy doubles what there is.
            first, there = ran.rows.start, len(ran)
            while first:
                count = min(first, there)
                yield group(first - count, count), group(first, count)
                first, there = first - count, there + count
            return
        # Of rows that do not follow one another a copy would be made: one at a time.
        for each in missing:
            for row, other in zip(each.rows, itertools.cycle(ran.rows)):
                yield group(row), group(other)
