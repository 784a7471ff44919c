"""How the samples of a call are divided into micro-batches: equal numbers of them, or as many as their tokens allow."""

from __future__ import annotations

from .batch_dims import split
from .padding import read_padding
from .refusal import Uncuttable
from .row_group import RowGroup
from .token_limit import TokenLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence

    from ..types import Leaves, Module, Torch, Tree
    from .padding import Padding
    from .plan import Plan
    from .ranks import OneRank

FEWER = "a rank has fewer samples in its batch than another has micro-batches"


class Division:
    """`warn(code)` is called if samples are counted although tokens should be."""

    def __init__(self, torch: Torch, warn: Callable[[str], None]) -> None:
        self._torch = torch
        self._warn = warn
        self.micro = 0
        #: How many tokens fit in a micro-batch; None: samples are counted, or the longest sample is not known yet.
        self._limit: TokenLimit | None = None
        self._by_longest = False
        #: Tokens of the longest sample that a call had; 0: no call told.
        self.longest = 0

    def begin(self, micro: int, tokens: int | None) -> None:
        """At most `micro` samples in a micro-batch. `tokens`: in place of them so many tokens; 0: as many as `micro` of the longest
        samples have. None: samples are counted."""
        self.micro = micro
        self._by_longest = tokens == 0
        self._limit = TokenLimit(tokens) if tokens else None

    def most(self, count: int, sizes: Sequence[int]) -> int:
        """The most rows of a micro-batch of a call with `count`; proportionally more in one with several views of each sample.
        `sizes`: rows of the loop's batches."""
        views = 1
        if count not in sizes:
            views = next((count // size for size in sizes if count % size == 0), 1)
        return self.micro * views

    def padding(self, module: Module, tree: Tree, leaves: Leaves) -> Padding | None:
        """How long the samples of a call are; None: that is not told, or not asked for."""
        if self._limit is None and not self._by_longest:
            return None
        padding = read_padding(self._torch, module, tree, leaves)
        if padding is None:
            self._warn("equal_rows")
            return None
        self.longest = max(self.longest, *padding.lengths)
        if self._by_longest:
            self._limit = TokenLimit(self.micro * self.longest)
        return padding

    def groups(
        self, count: int, most: int, plan: Plan, padding: Padding | None, trims: bool, ranks: OneRank
    ) -> list[RowGroup] | None:
        """The micro-batches of `count` samples; None: the call runs whole. `most`: samples in one, where they are counted;
        `trims`: padding is left out. Raises Uncuttable."""
        if padding is not None and self._limit is not None and len(padding.lengths) == count and not plan.even:
            if trims:
                groups = self._limit.groups(padding.lengths)
                if len(groups) == 1 and padding.window(groups[0]) is None:
                    return None
                return [RowGroup(self._torch, rows, padding.window(rows)) for rows in groups]
            most = self._limit.rows(padding.width)
        number = ranks.max(-(-count // most))
        if number < 2:
            return None
        if ranks.any(count < number):
            raise Uncuttable(FEWER)
        return [RowGroup(self._torch, range(*span)) for span in split(count, most, plan.even, number)]
