"""How many rows fit in a micro-batch by their lengths."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

#: What a micro-batch costs however short it is, in tokens of time: kernels are launched for it, and weights read.
BEGINNING = 512
#: Of more rows, as many that are neighbours by their lengths stay together: a search for the best division takes the square of it.
MOST_PARTS = 64


class TokenLimit:
    """At most `tokens` in a micro-batch, padding included. What grows with the square of a length (attention's scores) takes
    less where the same tokens are those of shorter rows."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def rows(self, length: int) -> int:
        """The most rows of a length."""
        return max(1, self.tokens // max(1, length))

    def groups(self, lengths: Sequence[int]) -> list[list[int]]:
        """Rows that run together, by length: the division that takes the least time, for padding and for micro-batches. The
        group that takes most memory is the last, as it is not recomputed."""
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        groups = [order[begin:end] for begin, end in self._spans([lengths[row] for row in order])]
        fullest = max(range(len(groups)), key=lambda at: len(groups[at]) / self.rows(lengths[groups[at][0]]))
        groups.append(groups.pop(fullest))
        return groups

    def _spans(self, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """The cheapest division of `lengths`, which descend: for each end the best begin, from the front on."""
        count = len(lengths)
        ends, stride = [0], -(-count // MOST_PARTS)
        while ends[-1] < count:
            ends.append(min(count, ends[-1] + min(stride, self.rows(lengths[ends[-1]]))))
        best: dict[int, tuple[int, int]] = {0: (0, 0)}  # by end: (tokens of time up to it, where its last span begins)
        for at, begin in enumerate(ends[:-1]):
            longest, so_far = max(1, lengths[begin]), best[begin][0]
            most = self.rows(longest)
            for end in ends[at + 1 :]:
                if end - begin > most:
                    break
                cost = so_far + longest * (end - begin) + BEGINNING
                if end not in best or cost < best[end][0]:
                    best[end] = (cost, begin)
        spans: list[tuple[int, int]] = []
        while count:
            begin = best[count][1]
            spans.append((begin, count))
            count = begin
        return spans[::-1]
