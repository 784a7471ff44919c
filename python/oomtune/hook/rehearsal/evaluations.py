"""The evaluations of a rehearsal: ends each after some batches, and keeps the one that would take most."""

from __future__ import annotations

import time
import weakref

from .evaluation import Evaluation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..watch.loader import LoaderIterator


#: Batches of an evaluation after which it ends, as far as its memory does not grow past the budget.
BATCHES = 50
#: Seconds for one whose memory does.
MOST_SECONDS = 120.0


class Evaluations:
    """`room`: what the budget leaves above the highest peak of evaluations so far, in bytes; None: growth is not followed."""

    def __init__(self, room: Callable[[], int | None]) -> None:
        self._room = room
        self._all: weakref.WeakKeyDictionary[LoaderIterator, Evaluation] = weakref.WeakKeyDictionary()
        self._current: Evaluation | None = None
        self._since = 0.0
        #: The one that would take most, and by how much it would go beyond its highest peak.
        self.largest: Evaluation | None = None
        self.more_bytes = 0

    def __contains__(self, iterator: LoaderIterator) -> bool:
        return iterator in self._all

    def begin(self, iterator: LoaderIterator, held: int | None) -> None:
        self._all[iterator] = Evaluation(iterator.loader, held)
        self._since = time.monotonic()

    def ends(self, iterator: LoaderIterator, live: int | None, peak: int | None) -> bool:
        """The next batch is asked for. Returns whether there have been enough. `peak`: the most in use since the one before was."""
        evaluation = self._all[iterator]
        evaluation.asks(live, peak if self._current is evaluation else None)
        self._current = evaluation
        self._weigh(evaluation)
        if evaluation.batches >= BATCHES and not self._leads_past(evaluation):
            evaluation.ended = True
            return True
        evaluation.batches += 1
        return False

    def had_no_more(self, iterator: LoaderIterator) -> None:
        """The batch that was asked for is not there: the loader has ended by itself."""
        self._all[iterator].batches -= 1
        self._all[iterator].ended = True

    def left(self, peak: int | None) -> None:
        """The script goes on to something else."""
        if self._current is not None:
            self._current.left(peak)
            self._weigh(self._current)

    def forget(self, iterator: LoaderIterator) -> None:
        """It is no evaluation: its batches are trained on."""
        if self._all.pop(iterator, None) is self.largest:
            self.largest, self.more_bytes = None, 0

    def _leads_past(self, evaluation: Evaluation) -> bool:
        """Growth that leads past the budget is followed to its end, as far as there is time."""
        room = self._room()
        return room is not None and evaluation.more_bytes() > room and time.monotonic() - self._since < MOST_SECONDS

    def _weigh(self, evaluation: Evaluation) -> None:
        more = evaluation.more_bytes()
        if self.largest is None or self.largest is evaluation or more > self.more_bytes:
            self.largest, self.more_bytes = evaluation, more
