"""How many samples a call of the script's model has, and in which dimension of its inputs they are."""

from __future__ import annotations

from .batch_size_variables import BatchSizeVariables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from .batch_resizer import BatchResizer


class CallRows:
    """`frame`: where the script is. Sets the dimension that `resizer` counts samples in: the second one (time first), if only
    there a variable that is named like a batch size holds the number."""

    def __init__(self, resizer: BatchResizer, tree: Any, frame: FrameType | None) -> None:
        found: list[tuple[int | None, BatchSizeVariables | None]] = []
        for dim in (0, 1):
            resizer.dim = dim
            rows = resizer.rows_of(tree)
            found.append((rows, None if rows is None else BatchSizeVariables(rows, frame)))
        resizer.dim = 1 if found[1][1] and not found[0][1] else 0
        #: Samples in the call; None: it has no tensor.
        self.count, self.variables = found[resizer.dim]
        #: Each input has a row for each of them.
        self.suitable = self.count is None or resizer.fits(tree, self.count)
