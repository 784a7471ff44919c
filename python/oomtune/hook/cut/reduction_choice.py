"""Which of the reductions that held for an output on the samples that were looked at hold for its batch."""

from __future__ import annotations

from .constant_weights import redrawn
from .reductions import disagreement
from .refusal import NoMean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Sequence

    from ..types import Leaves, Span, Torch
    from .reductions import Reduction
    from .sample_runs import SampleRuns


class ReductionChoice:
    """For the output at `index`, whose micro-batches have the rows `parts`."""

    def __init__(self, torch: Torch, runs: SampleRuns, index: int, parts: Sequence[Sequence[int]]) -> None:
        self._torch = torch
        self._runs = runs
        self._index = index
        self._parts = parts

    def among(self, names: Collection[str]) -> list[str]:
        """Names of the reductions that hold, now that they weight the micro-batches differently. Raises Unreduced."""
        candidates = self._runs.reductions.named(names)
        if self._runs.ranks.together:
            return self._among_ranks(candidates)
        rows = disagreement(candidates, self._parts)
        while rows is not None:
            kept = self._held(candidates, rows)
            if len(kept) == len(candidates):
                with redrawn(self._torch, self._runs.parameters):
                    kept = self._held(candidates, rows)
            if not kept or len(kept) == len(candidates):
                raise NoMean
            candidates = kept
            rows = disagreement(candidates, self._parts)
        return [reduction.name for reduction in candidates]

    def _held(self, candidates: list[Reduction], rows: Span) -> list[Reduction]:
        """The candidates that hold on two rows on which they differ; all of them: they cannot be told apart."""
        kept = self._runs.compare(sorted(rows)).holding(candidates, self._index)
        return kept if len(kept) < len(candidates) else self._told_apart(candidates, rows)

    def _among_ranks(self, candidates: list[Reduction]) -> list[str]:
        """among() if no rank may run the module alone: every rank runs it as often as any must."""
        rows = disagreement(candidates, self._parts)
        while self._runs.ranks.any(rows is not None):
            seen = self._runs.compare(sorted(rows or (0, 1)))
            kept = candidates
            if rows is not None:
                kept = seen.holding(candidates, self._index)
            if self._runs.ranks.any(rows is not None and not 0 < len(kept) < len(candidates)):
                raise NoMean
            candidates = kept
            rows = disagreement(candidates, self._parts)
        return [reduction.name for reduction in candidates]

    def _told_apart(self, candidates: list[Reduction], rows: Span) -> list[Reduction]:
        """The candidates that still hold when one row is filled with an ignored value: for reductions that differ by less than
        rounding on the samples themselves (the label 0 occurs, and may be ignored); else when one row has one value at its
        beginning that counts, and the other two (a loss of the next token counts one less in each row)."""
        for reduction in candidates[1:]:
            if reduction.ignored is None or reduction.weights(self._parts) == candidates[0].weights(self._parts):
                continue
            for leaves in (self._marked(reduction, rows[1]), self._begun(reduction, rows)):
                marked = self._runs.with_leaves(leaves)
                seen = marked.compare(sorted(rows))
                others = marked.reductions.named([one.name for one in candidates])
                names = [one.name for one in seen.holding(others, self._index)]
                if 0 < len(names) < len(candidates):
                    return [one for one in candidates if one.name in names]
        return candidates

    def _marked(self, reduction: Reduction, row: int) -> Leaves:
        """The leaves, with one row of the leaf that the reduction counts filled with the value that it ignores."""
        leaves, number = list(self._runs.leaves), reduction.leaf
        if number is not None:
            leaves[number] = leaves[number].detach().clone()
            leaves[number].select(self._runs.dims.dims[number], row).fill_(reduction.ignored)
        return leaves

    def _begun(self, reduction: Reduction, rows: Span) -> Leaves:
        """The leaves, with two values that count in the first of the rows, and one in the other."""
        leaves, number = self._marked(reduction, rows[0]), reduction.leaf
        if number is None or leaves[number].dim() < 2:
            return leaves
        leaf = leaves[number]
        counted = leaf[leaf != reduction.ignored].flatten()[:1]
        for row, kept in zip(rows, (2, 1)):
            values = leaf.select(self._runs.dims.dims[number], row)
            values.fill_(reduction.ignored)
            values[:kept] = counted if len(counted) else reduction.ignored
        return leaves
