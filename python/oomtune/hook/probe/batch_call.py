"""Which call of a model has the script's batch, in a loop without a DataLoader."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .call_rows import CallRows


class BatchCall:
    """The first call counts, but not one of one row, or of one sample without a dimension for rows, until a backward pass shows that it
    was for that: an agent asks its model so what to do, between its batches, and others try their model before they train it."""

    def __init__(self) -> None:
        #: What is known of the call; None: it was not made yet.
        self.found: CallRows | None = None
        #: Where it is, if it was doubted.
        self.site: Any = None
        #: The latest call of one row or sample that no backward pass has followed, and where it is.
        self._doubted: CallRows | None = None
        self.doubted_site: Any = None

    def made(self, rows: CallRows, site: Any = None) -> None:
        """A training call is made. `site`: identifies the line that makes it."""
        if rows.count == 1 or (rows.count and rows.doubtful):
            self._doubted, self.doubted_site = rows, site
        elif rows.count is not None:
            self.found = rows

    def backward(self) -> None:
        """A backward pass begins: the latest call was for that."""
        if self.found is None and self._doubted is not None:
            self.found, self.site = self._doubted, self.doubted_site
            self.doubted_site = None
