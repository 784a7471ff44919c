"""How many samples a call of the script's model has, and in which dimension of its inputs they are."""

from __future__ import annotations

from .batch_size_variables import BatchSizeVariables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Sequence

    from .batch_resizer import BatchResizer


class CallRows:
    """`frame`: where the script is. Sets the dimension that `resizer` counts samples in: the one in which a variable that is named
    like a batch size holds the number. Where names do not decide between the first and the second one (time first),
    `ask(counts)` does, by running the model: it returns the number of the dimension, or None; else it is the first."""

    def __init__(
        self,
        resizer: BatchResizer,
        tree: Any,
        frame: FrameType | None,
        ask: Callable[[Sequence[int]], int | None] = lambda counts: None,
    ) -> None:
        counts: list[int | None] = []
        variables: list[BatchSizeVariables | None] = []
        for dim in (0, 1):
            resizer.dim = dim
            rows = resizer.rows_of(tree)
            counts.append(rows)
            variables.append(None if rows is None else BatchSizeVariables(rows, frame))
        resizer.dim = 1 if variables[1] and not variables[0] else 0
        if bool(variables[0]) == bool(variables[1]) and resizer.may_be_sequences(tree):
            resizer.dim = ask([count for count in counts if count is not None]) or 0
        #: Samples in the call; None: it has no tensor.
        self.count, self.variables = counts[resizer.dim], variables[resizer.dim]
        #: It may be one sample, whose features are counted.
        self.doubtful = resizer.has_no_rows(tree)
        #: Each input has a row for each of them.
        self.suitable = self.count is None or resizer.fits(tree, self.count)
