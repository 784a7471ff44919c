"""Compares a module's outputs for some rows together and separately, which shows how its outputs join."""

from __future__ import annotations

import functools
import operator

from .dense import dense_instead, has_rows
from .memory_order import memory_order
from .nearness import apart, near
from .outputs import Concatenated, Constant, Shared, WeightedSum
from .refusal import UNPADDED, Mismatch, NoMean, Unreduced, Unseen
from .row_group import RowGroup
from .row_order import RowOrder, orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

    from ..types import Leaves, Tensor, Torch
    from .outputs import Join
    from .reductions import Reduction, Reductions

    #: One leaf of the output: for all rows, for the first part of them, for the rest, for the first row in place of the last.
    Entry = Tuple[Any, Any, Any, Any]
    #: (whether it is evaluation mode, the turn in which each sample draws the same random numbers in all runs; None: it draws others).
    Mode = Tuple[bool, Optional[int]]

#: Relative tolerance for rounding: in single precision, and in lower precision.
FINE, COARSE = 2e-4, 2e-2


class Comparison:
    """`outputs`: leaves of the output for all `rows`, for the first half and for the rest; `again`: for all rows with other
    random numbers; `changed()`: with the same ones, for the first row in the place of the last; `fine`: computed in single
    precision or better; `mode`: in which they were run. Raises Mismatch."""

    def __init__(
        self,
        torch: Torch,
        rows: list[int],
        outputs: list[Leaves],
        again: Leaves,
        changed: Callable[[], Leaves],
        fine: bool,
        mode: Mode,
    ) -> None:
        self._torch = torch
        self.mode = mode
        self._rows = rows
        self._half = half_of(rows)
        self._outputs = outputs
        #: Computed in single precision or better.
        self.fine = fine
        self._tolerance = FINE if fine else COARSE
        if len({len(output) for output in [*outputs, again]}) != 1:
            raise Mismatch("what it returns has another structure for fewer samples")
        for leaf in outputs[0]:
            if isinstance(leaf, torch.Tensor) and not has_rows(leaf):
                raise Unseen("it returns a %s tensor: %s, it joins along the samples" % dense_instead(leaf))
        #: The outputs depend on random numbers.
        self.random = not all(self._near(one, other, FINE) for one, other in zip(outputs[0], again))
        self._changed = changed() if self.random else outputs[0]
        #: The order of an output's rows could not be seen.
        self.undecided = False

    @property
    def numbers(self) -> int:
        """How many numbers the outputs have for each sample."""
        tensors = [leaf for leaf in self._outputs[0] if isinstance(leaf, self._torch.Tensor)]
        return sum(leaf.numel() for leaf in tensors) // len(self._rows)

    @property
    def hides(self) -> bool:
        """Whether random numbers hide what one value for all samples is made of."""
        return self.random and any(self._is_value(whole, first, last) for whole, first, last, _ in self._entries())

    def _is_value(self, whole: Any, first: Any, last: Any) -> bool:
        shapes = {getattr(each, "shape", ()) for each in (whole, first, last)}
        return len(shapes) == 1 and not self._alike(whole, first, last)

    def _alike(self, whole: Any, first: Any, last: Any) -> bool:
        return self._near(whole, first, 0.0) and self._near(whole, last, 0.0)

    def similar(self, other: Comparison) -> bool:
        """Whether the output in another mode has the same types and shapes."""
        mine, theirs = self._outputs[0], other._outputs[0]
        return len(mine) == len(theirs) and all(
            type(one) is type(two) and getattr(one, "shape", None) == getattr(two, "shape", None)
            for one, two in zip(mine, theirs)
        )

    def _entries(self) -> list[Entry]:
        whole, first, last = self._outputs
        return list(zip(whole, first, last, self._changed))

    def joins(self, reductions: Reductions) -> list[Join]:
        """How each leaf of the output joins. Raises Uncuttable."""
        return [self._join(entry, reductions) for entry in self._entries()]

    def compares_samples(self, reductions: Reductions) -> bool:
        """Whether what comes first, one number (a loss that the module makes), is neither a mean nor a sum over samples or tokens. False
        where that cannot be seen."""
        entry = self._entries()[0]
        tensors = all(isinstance(part, self._torch.Tensor) for part in entry[:3])
        if not tensors or entry[0].dim() or not entry[0].is_floating_point() or self.random:
            return False
        return not self._holding(reductions.named(), entry)

    def holding(self, candidates: list[Reduction], index: int) -> list[Reduction]:
        """The candidates that explain the output at `index`."""
        return self._holding(candidates, self._entries()[index])

    def holds_value(self, index: int) -> bool:
        """Whether the output at `index` is one value for all rows, here too."""
        return self._is_value(*self._entries()[index][:3])

    def part_off(self, index: int, join: Concatenated, tolerance: float) -> float:
        """The part of the samples whose rows of the output at `index` are off by more than `tolerance` of what a sample's are on average."""
        entry = self._entries()[index]
        whole, joined = (join.by_sample(each) for each in (entry[0], self._joined(entry, join)))
        off = (whole - joined).norm(dim=1)
        return float((off > tolerance * whole.norm() / len(whole) ** 0.5).double().mean())

    def _near(self, one: Any, other: Any, tolerance: float) -> bool:
        return near(self._torch, one, other, tolerance)

    def _join(self, entry: Entry, reductions: Reductions) -> Join:
        torch = self._torch
        whole, first, last, changed = entry
        if not isinstance(whole, torch.Tensor):
            if _has_content(whole) and not (_equal(whole, first) and _equal(whole, last)):
                raise Unseen(
                    "it returns an object (%s) that may hold its samples, and cannot be looked into"
                    % type(whole).__name__
                )
            if isinstance(whole, float) and not self._near(whole, first, 0.0):
                return self._reduced(entry, reductions)
            if not self._alike(whole, first, last):
                raise Mismatch("it returns a value that changes with its samples (%r)" % (whole,))
            return Constant()
        if not isinstance(first, torch.Tensor) or not isinstance(last, torch.Tensor):
            raise Mismatch("what it returns has another structure for fewer samples")
        count = len(self._rows)
        first, last = (
            self._with_row(part, whole, size) for part, size in ((first, self._half), (last, count - self._half))
        )
        entry = whole, first, last, changed
        if not first.dim() == last.dim() == whole.dim():
            raise Mismatch("what it returns has another structure for fewer samples")
        dims = [dim for dim in range(whole.dim()) if len({whole.shape[dim], first.shape[dim], last.shape[dim]}) > 1]
        if count == 2:
            dims = [dim for dim in range(whole.dim()) if whole.shape[dim] != first.shape[dim]]
        if not dims:
            return self._reduced(entry, reductions)
        sizes = [count, self._half, count - self._half]
        each = whole.shape[dims[0]] // count
        if len(dims) > 1 or [part.shape[dims[0]] for part in entry[:3]] != [size * each for size in sizes]:
            raise _do_not_join(whole, first, last)
        order = RowOrder(orders(dims[0], each), functools.partial(self._off, entry))
        if order.off > self._tolerance:
            raise Mismatch(
                "what it returns for a sample depends on the other samples of the batch, and at the loader would on those of its micro-batch"
            )
        self.undecided = self.undecided or order.undecided
        order.best.order, order.best.dims = memory_order(torch, whole), whole.dim()
        return order.best

    def _with_row(self, part: Tensor, whole: Tensor, size: int) -> Tensor:
        """What one sample alone gave, with the dimension of the samples that it lost, if `whole` tells which."""
        if size > 1 or part.dim() != whole.dim() - 1:
            return part
        shape, count = tuple(whole.shape), len(self._rows)
        lost = (
            dim for dim in range(whole.dim()) if shape[dim] == count and shape[:dim] + shape[dim + 1 :] == part.shape
        )
        dim = next(lost, None)
        return part if dim is None else part.unsqueeze(dim)

    def _off(self, entry: Entry, order: Concatenated) -> float:
        """How far an output is off if its rows are in that order and no sample depends on another one."""
        whole, _, _, changed = entry
        if self.random:
            # Drawn for other shapes the numbers are others: what another last sample leaves as it was is of the first ones.
            kept = RowGroup(self._torch, range(len(self._rows) - 1))
            if not isinstance(changed, self._torch.Tensor) or changed.shape != whole.shape:
                return 0.0 if order.rows(1) == order.factor == 1 else float("inf")
            return apart(self._torch, order.part(whole, kept), order.part(changed, kept))
        return apart(self._torch, whole, self._joined(entry, order))

    def _joined(self, entry: Entry, order: Concatenated) -> Tensor:
        """An output as it is if its rows are in that order: the parts', one after the other."""
        whole, first, last, _ = entry
        joined, count = self._torch.empty_like(whole), len(self._rows)
        for part, rows in ((first, range(self._half)), (last, range(self._half, count))):
            shape = list(whole.shape)
            shape[order.dim] = order.rows(len(rows))
            if list(part.shape) != shape:
                raise _do_not_join(whole, first, last)
            order.put(joined, RowGroup(self._torch, rows), part)
        return joined

    def _reduced(self, entry: Entry, reductions: Reductions) -> Join:
        whole, first, last, _ = entry
        alike = self._alike(whole, first, last)
        exact = not isinstance(whole, self._torch.Tensor) or not (whole.is_floating_point() or whole.is_complex())
        if alike and exact:
            return Constant()
        if self.random and not alike:
            raise Unreduced(
                "it returns one value for all its samples and draws random numbers, so that what it is made of cannot be seen"
            )
        kept = self._holding(reductions.named(), entry)
        if not kept:
            raise NoMean
        names = [reduction.name for reduction in kept]
        return Shared(names) if alike and "sum" not in names else WeightedSum(names)

    def _holding(self, candidates: list[Reduction], entry: Entry) -> list[Reduction]:
        parts = [self._rows[: self._half], self._rows[self._half :]]
        whole, values = entry[0], entry[1:3]
        kept: list[Reduction] = []
        for reduction in candidates:
            total: Any = 0.0
            for weight, value in zip(reduction.weights(parts), values):
                if weight:
                    total = total + value * weight
            if isinstance(whole, self._torch.Tensor) and not isinstance(total, self._torch.Tensor):
                total = self._torch.full_like(whole, total)
            if self._near(whole, total, self._tolerance):
                kept.append(reduction)
        return kept


def half_of(rows: list[int]) -> int:
    """How many of the rows are in the first part."""
    return (len(rows) + 1) // 2


def _do_not_join(whole: Tensor, *parts: Tensor) -> Mismatch:
    shapes = " and ".join(str(tuple(each.shape)) for each in (whole, *parts))
    reason = "its outputs do not join along the samples (of shapes %s)" % shapes
    if any(sum(map(operator.ne, whole.shape, part.shape)) > 1 for part in parts):
        reason += UNPADDED
    return Mismatch(reason)


def _has_content(leaf: Any) -> bool:
    """Whether a leaf that is no tensor may hold some: a function (a closure, a partial one) does, and does not tell."""
    if isinstance(leaf, (str, bytes, int, float, complex, type(None), type)):
        return False
    return callable(leaf) or getattr(leaf, "__dict__", None) != {}


def _equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # what compares has a truth of its own: an array of another size has none
        return False
