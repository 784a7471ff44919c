"""Which dimension of each input is the batch, and how a batch is split into micro-batches."""

from __future__ import annotations

from .memory_order import as_dense
from .pytree import SampleList

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional, Sequence

    from ..types import Leaves, Span, Tensor, Torch
    from .row_group import RowGroup

    #: For each input the dimension that is cut; None: it is passed whole.
    Dims = List[Optional[int]]

#: Micro-batches before the last have at least the most allowed rows divided by this.
SMALLEST = 4

#: The most views of each sample in one call (two crops of each image, say).
VIEWS = 8


class BatchDims:
    """For each leaf of the inputs the dimension that is cut; None: it is passed whole."""

    def __init__(self, count: int, dims: Dims) -> None:
        #: Rows in the call.
        self.count = count
        self.dims = dims

    def parts(self, leaves: Leaves, group: RowGroup, trimmed: Sequence[int] = ()) -> Leaves:
        """The group's part of all leaves; of those `trimmed`, by number, only the tokens in its window."""
        found = [self.part(leaf, dim, group) for leaf, dim in zip(leaves, self.dims)]
        if group.window is not None:
            for number in trimmed:
                found[number] = as_dense(found[number].narrow(1, *group.window), found[number])
        return found

    def part(self, leaf: Any, dim: int | None, group: RowGroup) -> Any:
        """The group's rows of a leaf."""
        if dim is None:
            return leaf.items if isinstance(leaf, SampleList) else leaf
        if isinstance(leaf, SampleList):
            rows = group.rows
            if isinstance(rows, range):
                return leaf.items[rows.start : rows.stop]
            return type(leaf.items)(leaf.items[row] for row in rows)
        # As the whole is: cuDNN takes no other state, and view() not every other tensor.
        return as_dense(group.of(leaf, dim), leaf)


def split(count: int, most: int, even: bool, parts: int | None = None) -> list[Span]:
    """Splits `count` rows into micro-batches of at most `most` rows. `parts`: how many; None: as few as possible. `even`: of
    equal size; else the last one, which is not recomputed, is as large as possible."""
    parts = parts or -(-count // most)
    last = -(-count // parts)
    if not even and parts > 1:
        last = max(last, min(most, count - (parts - 1) * max(1, most // SMALLEST)))
    before = count - last
    starts = [before * index // max(1, parts - 1) for index in range(parts - 1)] + [before]
    return list(zip(starts, [*starts[1:], count]))


def candidates(torch: Torch, leaves: Leaves, sizes: Sequence[int]) -> Iterator[BatchDims]:
    """Dimensions worth trying, the likeliest first. `sizes`: rows of the latest batches of the loop."""
    for count in _counts(torch, leaves, sizes):
        first = [_dim(torch, leaf, count, 0) for leaf in leaves]
        second = [_dim(torch, leaf, count, 1) for leaf in leaves]
        yield BatchDims(count, first)
        if second != first:
            yield BatchDims(count, second)
        not_square = [None if _square(torch, leaf, count) else dim for leaf, dim in zip(leaves, first)]
        if not_square != first and any(dim is not None for dim in not_square):
            yield BatchDims(count, not_square)


def _counts(torch: Torch, leaves: Leaves, sizes: Sequence[int]) -> list[int]:
    """Row counts that the call may have."""
    shapes: list[tuple[int, ...]] = [_shape(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    lengths = {len(leaf.items) for leaf in leaves if isinstance(leaf, SampleList)}
    first = {shape[0] for shape in shapes if shape} | lengths
    second = {shape[1] for shape in shapes if len(shape) > 1}
    several = [size * views for views in range(2, VIEWS + 1) for size in sizes]
    found: list[int] = []
    # Last, a part of the samples (those that a mask selects), if all inputs have the same number of rows.
    some: set[int] = first if len(first) == 1 else set()
    for wanted, there in ((sizes, first), (several, first), (sizes, second), (some, first)):
        for size in wanted:
            if size in there and size > 1 and size not in found:
                found.append(size)
    return found


def _dim(torch: Torch, leaf: Any, count: int, preferred: int) -> int | None:
    if isinstance(leaf, SampleList):
        return 0 if len(leaf.items) == count else None
    if not isinstance(leaf, torch.Tensor):
        return None
    found = [dim for dim, size in enumerate(_shape(leaf)[:2]) if size == count]
    if preferred in found:
        return preferred
    return found[0] if found else None


def _square(torch: Torch, leaf: Any, count: int) -> bool:
    """Whether a leaf is square: perhaps a mask between positions, as many as there are samples."""
    return isinstance(leaf, torch.Tensor) and _shape(leaf)[:2] == (count, count)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Of a nested tensor only how many samples it has."""
    return (tensor.size(0),) if tensor.is_nested else tuple(tensor.shape)
