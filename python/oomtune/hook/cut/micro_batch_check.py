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

#: So many times as rare as the one before it is each look.
RARER = 4
#: A part of the samples whose outputs may be others: of so many some are rounded to the other side of a decision (an expert's, a code's).
FEW = 0.05
#: The outputs that are compared have at most so many numbers: logits of whole sequences, which training may never hold, would take the budget.
NUMBERS = 1 << 22
#: Fewer samples than these have been looked at before.
LEAST = 4
#: Below single precision an output's rows are off by so many times more than all of them together: of those many, some always are.
SINGLE_ROWS = 4.0


def is_due(call: int) -> bool:
    """Whether the cut call of that number is looked at: the 1st, the 4th, the 16th and so on, as a look costs as much as a step."""
    while call > 1 and call % RARER == 0:
        call //= RARER
    return call == 1


def most_looked_at(numbers: int) -> int:
    """Samples of a look at most, where each has so many numbers in the outputs."""
    return NUMBERS // max(numbers, 1)


class MicroBatchCheck:
    """Of a module whose outputs were seen to have these `joins`; `differentiable`: which require gradients; `coarse`: it computes in less than
    single precision. It does so in the look, too, which would take ten times as long without."""

    def __init__(
        self, torch: Torch, runs: SampleRuns, joins: Sequence[Join], differentiable: Sequence[bool], coarse: bool
    ) -> None:
        self._runs = runs
        self._joins = joins
        self._differentiable = differentiable
        self._precise = not coarse and not _uses_tf32(torch)

    def require_same(self, rows: list[int], most: int) -> None:
        """Raises NoMean or Mismatch if the outputs for all `rows`, or for `most` of them, are not made of those of their halves, or those for a few
        samples, which tell the most of a mean over some. Where each run draws other random numbers, or there is no room, nothing is seen."""
        choices = [*self._runs.many_rows(min(most, len(rows))), rows[:most]]
        for chosen in choices if min(most, len(rows)) >= LEAST else ():
            seen = self._runs.compare_alone(chosen, self._precise)
            if seen is None:
                return
            self._require_same(seen)

    def _require_same(self, seen: Comparison) -> None:
        tolerance = FINE if seen.fine else COARSE * SINGLE_ROWS
        for index, (join, learns) in enumerate(zip(self._joins, self._differentiable)):
            if not learns:
                continue
            if isinstance(join, Concatenated) and seen.part_off(index, join, tolerance) > FEW:
                raise Mismatch("what it returns for a sample depends on the other samples of the batch")
            if not isinstance(join, WeightedSum) or isinstance(join, Shared) or not seen.holds_value(index):
                continue
            if not seen.holding(self._runs.reductions.named(join.names), index):
                raise NoMean


def _uses_tf32(torch: Torch) -> bool:
    return torch.cuda.is_available() and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
