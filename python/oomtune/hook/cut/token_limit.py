"""How many rows fit in a micro-batch by their lengths."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

#: Rows shorter than this part of a group's longest begin a group of their own: padding costs time.
MUCH_SHORTER = 0.5


class TokenLimit:
    """At most `tokens` in a micro-batch, padding included. What grows with the square of a length (attention's scores) takes
    less where the same tokens are those of shorter rows."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def rows(self, length: int) -> int:
        """The most rows of a length."""
        return max(1, self.tokens // max(1, length))

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
