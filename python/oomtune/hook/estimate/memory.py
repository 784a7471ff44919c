"""The memory of the card that is not there, as probes read it."""

from __future__ import annotations

import gc

from ..watch.memory import Ledger, Uncached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ledger import CardLedger


class CardMemory(Uncached):
    device = "cuda:0"

    def __init__(self, card: CardLedger) -> None:
        #: Of the host, whose memory can run out, too.
        self.ledger = Ledger(-1)
        self._card = card

    def synchronize(self) -> None:
        """At the ends of steps. Cycles are freed here and nowhere else, so that steps of all sizes free in the same order."""
        gc.disable()
        gc.collect()
        self._card.step_done()

    def free_cache(self) -> None:
        self._card.begin_probe()

    def reset(self) -> None:
        self._card.peak = self._card.live

    def peaks(self) -> tuple[int | None, int | None, int | None]:
        return self._card.peak, self._card.peak, None

    def live(self) -> int | None:
        return self._card.live
