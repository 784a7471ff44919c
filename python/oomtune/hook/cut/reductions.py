"""How a module may reduce its samples to an output without a row for each: a loss is their mean, their sum, or a mean over
the tokens that count. The reduction gives the weight of each micro-batch."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Optional, Sequence, Tuple

    from ..types import Leaves, Span, Tensor, Torch
    from .batch_dims import BatchDims

    #: By name: (the number of the input that is counted, the value in it that is ignored).
    Counted = Dict[str, Tuple[Optional[int], Optional[int]]]

#: Labels that losses ignore by default (torch and transformers: -100; minGPT: -1), and padding (0).
IGNORED = (-100, -1, 0)


class Reduction:
    """`counts`: the weight of each row; None: a sum, in which each micro-batch has weight 1. `leaf`: the number of the input
    that is counted; `ignored`: the value in it that is not."""

    def __init__(
        self, name: str, counts: Sequence[float] | None, leaf: int | None = None, ignored: int | None = None
    ) -> None:
        self.name = name
        self._counts = counts
        self._total = sum(counts or ())
        self.leaf = leaf
        self.ignored = ignored

    def weights(self, parts: Sequence[Sequence[int]]) -> list[float]:
        """The weight of each micro-batch. `parts`: the row numbers of each."""
        counts = self._counts
        if counts is None:
            return [1.0] * len(parts)
        sums = [float(sum(counts[row] for row in part)) for part in parts]
        total = sum(sums)
        return [value / total if total else 0.0 for value in sums]

    def share(self, row: int) -> float:
        if self._counts is None:
            return 1.0
        return self._counts[row] / (self._total or 1)


class Reductions:
    """The reductions that may hold for the inputs of one call. Row counts are fetched from the device once."""

    def __init__(self, torch: Torch, leaves: Leaves, dims: BatchDims) -> None:
        self._torch = torch
        self._leaves = leaves
        self._dims = dims
        self._counts: dict[str, Sequence[float] | None] = {}

    def named(self, names: Collection[str] | None = None) -> list[Reduction]:
        """By name; None: all of them."""
        every = self._names()
        wanted = [name for name in every if names is None or name in names]
        self._count([name for name in wanted if name not in self._counts])
        found = [Reduction(name, self._counts[name], *every[name]) for name in wanted]
        return [reduction for reduction in found if self._counts[reduction.name] is not None or reduction.name == "sum"]

    def first(self, names: Collection[str]) -> Reduction:
        return self.named([next(name for name in self._names() if name in names)])[0]

    def _names(self) -> Counted:
        torch = self._torch
        found: Counted = {"samples": (None, None)}
        for index, (leaf, dim) in enumerate(zip(self._leaves, self._dims.dims)):
            if dim is None or not isinstance(leaf, torch.Tensor) or leaf.is_complex():
                continue
            if leaf.is_floating_point():
                if leaf.dim() == 2:
                    found["%d weights" % index] = (index, None)
                continue
            for value in (0,) if leaf.dtype == torch.bool else IGNORED:
                found["%d but %d" % (index, value)] = (index, value)
                if leaf.dim() > 1:
                    found["%d shifted but %d" % (index, value)] = (index, value)
        found["sum"] = (None, None)
        return found

    def _count(self, names: Collection[str]) -> None:
        torch, every = self._torch, self._names()
        sums: dict[str, Tensor] = {}
        for name in names:
            index, ignored = every[name]
            if index is None:
                self._counts[name] = [1] * self._dims.count if name == "samples" else None
                continue
            rows = self._leaves[index].detach().movedim(self._dims.dims[index], 0)
            if ignored is None:
                self._counts[name] = _row_weights(rows)
                continue
            flags = (rows[:, 1:] if "shifted" in name else rows) != ignored
            sums[name] = flags.reshape(len(flags), -1).sum(1)
        if sums:
            # One transfer for all, as each waits for the device.
            device = next(iter(sums.values())).device
            counted = torch.stack([each.to(device) for each in sums.values()]).tolist()
            self._counts.update(zip(sums, counted))


def _row_weights(rows: Tensor) -> list[float] | None:
    values = rows.double()
    return values.sum(1).tolist() if bool((values >= 0).all()) else None


def disagreement(reductions: Sequence[Reduction], parts: Sequence[Sequence[int]]) -> Span | None:
    """The two rows on which two reductions differ most, if they weight the micro-batches differently; else None."""
    first = reductions[0]
    for other in reductions[1:]:
        if any(abs(one - two) > 1e-12 for one, two in zip(first.weights(parts), other.weights(parts))):
            ratio = {row: _ratio(first.share(row), other.share(row)) for part in parts for row in part}
            return min(ratio, key=lambda row: ratio[row]), max(ratio, key=lambda row: ratio[row])
    return None


def _ratio(one: float, two: float) -> float:
    return one / (one + two) if one + two else 0.5
