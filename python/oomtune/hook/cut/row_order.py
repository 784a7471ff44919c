"""Which rows of an output belong to which sample, where it has several for each: sequences flattened with the batch first have the
tokens of a sample together, those flattened with time first the samples of a token."""

from __future__ import annotations

from .outputs import Concatenated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

#: An order explains an output as well as another one if it is off by at most so many times as much: as rounding may be.
ALIKE = 16.0


def orders(dim: int, rows: int) -> list[Concatenated]:
    """All orders that `rows` rows for each sample may be in, the likeliest first."""
    ends = [blocks for blocks in (1, rows) if rows > 1] or [1]
    between = [blocks for blocks in range(2, rows) if rows % blocks == 0]
    return [Concatenated(dim, rows // blocks, blocks) for blocks in ends + between]


class RowOrder:
    """The order that explains an output best; `off(order)`: how far it is off, relative to the output."""

    def __init__(self, candidates: list[Concatenated], off: Callable[[Concatenated], float]) -> None:
        found = [(off(order), order) for order in candidates]
        #: How far the best one is off.
        self.off, self.best = min(found, key=lambda each: each[0])
        #: Another order explains the output as well: its samples are too much alike (a head of zeros, say).
        self.undecided = sum(each <= ALIKE * self.off for each, _ in found) > 1
