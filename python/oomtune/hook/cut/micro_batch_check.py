"""Looks at a whole micro-batch, together and in two halves. What holds of two or three samples may not hold of hundreds (a capacity that is never
below 64, a mean over the hardest 512), nor later in training (a hinge that few samples reach by then)."""

from __future__ import annotations

from .comparison import COARSE, FINE
from .outputs import Concatenated, Shared, WeightedSum
from .refusal import Mismatch, NoMean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..types import Torch
    from .comparison import Comparison
    from .outputs import Join
    from .sample_runs import SampleRuns

#: A part of the samples whose outputs may be others: of so many some are rounded to the other side of a decision (an expert's, a code's).
FEW = 0.05
#: The outputs that are compared have at most so many numbers: logits of whole sequences, which training may never hold, would take the budget.
NUMBERS = 1 << 22
#: Fewer samples than these have been looked at before.
LEAST = 4
#: Below single precision an output's rows are off by so many times more than all of them together: of those many, some always are.
SINGLE_ROWS = 4.0


def is_due(call: int) -> bool:
    """Whether the cut call of that number, from 1 on, is looked at: each takes up to eight forward passes of a micro-batch, so they get rarer."""
    return call & (call - 1) == 0


def most_looked_at(numbers: int) -> int:
    """Samples of a look at most, where each has so many numbers in the outputs."""
    return NUMBERS // max(numbers, 1)


class MicroBatchCheck:
    """Of a module whose outputs were seen to have these `joins`; `differentiable`: which require gradients."""

    def __init__(self, torch: Torch, runs: SampleRuns, joins: Sequence[Join], differentiable: Sequence[bool]) -> None:
        self._torch = torch
        self._runs = runs
        self._joins = joins
        self._differentiable = differentiable

    def require_same(self, rows: list[int]) -> None:
        """Raises NoMean or Mismatch if the outputs for all `rows` are not made of those of their halves. Where each run draws other random
        numbers, or there is no room for the look, nothing is seen."""
        seen = self._runs.compare_alone(rows)
        if seen is None:
            return
        tolerance = FINE if seen.fine else COARSE * SINGLE_ROWS
        for index, (join, learns) in enumerate(zip(self._joins, self._differentiable)):
            if not learns:
                continue
            if isinstance(join, Concatenated) and seen.part_off(index, join, tolerance) > FEW:
                raise Mismatch("what it returns for a sample depends on the other samples of the batch")
            if isinstance(join, WeightedSum) and not isinstance(join, Shared) and seen.holds_value(index):
                self._require_reduced(seen, index, join)

    def _require_reduced(self, seen: Comparison, index: int, join: WeightedSum) -> None:
        if not seen.holding(self._runs.reductions.named(join.names), index):
            raise NoMean
