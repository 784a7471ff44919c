"""One pass of an evaluation over its loader, of which only the first batches are run: what all of them would take."""

from __future__ import annotations

from ..probe.step_phases import rise
from ..watch.loader import own_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import Loader


#: The first batches allocate more than the others: kernels, caches.
WARM = 2
#: The latest batches, which growth is judged by.
LATEST = 64


class Evaluation:
    def __init__(self, loader: Loader, held: int | None) -> None:
        try:
            #: Batches of the whole pass; None: unknown.
            self.of: int | None = len(loader)
        except (TypeError, NotImplementedError):
            self.of = None
        self.batch = own_batch(loader)
        #: Batches that were handed out.
        self.batches = 0
        #: What the training has left in memory that depends on its batch.
        self.held = held
        #: In use when each batch was asked for, and the most in use from the request before on.
        self._live: list[int | None] = []
        self._peaks: list[int | None] = []
        #: What it computes when its loop is over (outputs joined, metrics) takes so much more than is in use then.
        self._after = 0
        self.ended = False

    def asks(self, live: int | None, peak: int | None) -> None:
        """The next batch is asked for. `peak`: the most in use since the one before was."""
        if self.batches > 0:
            self._peaks.append(peak)
        self._live.append(live)
        del self._peaks[:-LATEST], self._live[:-LATEST]

    def left(self, peak: int | None) -> None:
        """The script goes on to something else."""
        live = self._live[-1] if self._live else None
        if self.ended and peak is not None and live is not None:
            self._after = max(self._after, peak - live)

    @property
    def growth(self) -> int:
        """Bytes by which each batch raises the peak of the next one: outputs that are collected on the device."""
        return rise(self._peaks[WARM:]) or 0

    def more_bytes(self) -> int:
        """By how much the whole pass would go beyond its highest peak so far."""
        if self.of is None or self.batches >= self.of or self.growth == 0:
            return 0
        more = self.growth * (self.of - self.batches)
        kept = (rise(self._live[WARM:]) or 0) * self.batches
        # What is joined after the loop is as large as what was collected.
        joined = min(self._after, kept) * (self.of - self.batches) // max(1, self.batches)
        return more + joined
