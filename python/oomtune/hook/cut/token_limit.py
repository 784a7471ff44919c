"""How many rows fit in a micro-batch by their lengths."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

#: Rows shorter than this part of a group's longest begin a group of their own: padding costs time.
MUCH_SHORTER = 0.5


class TokenLimit:
    """At most `tokens` in a micro-batch, padding included. Where attention itself takes memory, that is for rows of length 0:
    a row of n tokens takes n / `tokens` + n * n / `squared` of the memory."""

    def __init__(self, tokens: float, squared: float | None = None) -> None:
        self.tokens = tokens
        self.squared = squared

    def rows(self, length: int) -> int:
        """The most rows of a length."""
        length = max(1, length)
        part = length / self.tokens + (length * length / self.squared if self.squared else 0.0)
        return max(1, int(1 / part + 1e-9))

    def groups(self, lengths: Sequence[int]) -> list[list[int]]:
        """Rows that run together, by length; the group that takes most memory is the last, as it is not recomputed."""
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        groups: list[list[int]] = []
        longest = most = 0
        for row in order:
            if not groups or len(groups[-1]) >= most or lengths[row] < MUCH_SHORTER * longest:
                groups.append([])
                longest, most = lengths[row], self.rows(lengths[row])
            groups[-1].append(row)
        fullest = max(range(len(groups)), key=lambda at: len(groups[at]) / self.rows(lengths[groups[at][0]]))
        groups.append(groups.pop(fullest))
        return groups
