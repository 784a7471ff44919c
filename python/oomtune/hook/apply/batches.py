"""Other batches from the user's own loader: the same samples, in the same order."""

from __future__ import annotations

import functools
import weakref

from ..watch import trees
from ..watch.loader import drawn_count, own_batch, sample_count
from .gate import MicroBatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..instruments import Instruments
    from ..types import Loader, Torch
    from ..watch.loader import LoopIterator


class InseparableRows(Exception):
    """Rows cannot be taken out of the loader's batches."""


class _Pass:
    """One pass over a loader. The iterator holds it, so it does not hold the iterator."""

    def __init__(self, iterator: LoopIterator) -> None:
        self._iterator = weakref.ref(iterator)

    def _next(self) -> Any:
        iterator = self._iterator()
        assert iterator is not None  # it is what asks
        return iterator.next_real()


class RowPass(_Pass):
    """One pass over a loader, its batches cut into micro-batches of at most `micro` samples, in order."""

    def __init__(self, torch: Torch, iterator: LoopIterator, wanted: int, micro: int, paced: bool) -> None:
        super().__init__(iterator)
        self._torch = torch
        self._wanted = wanted
        self._micro = micro
        self.paced = paced
        self._number = -1
        self._batch = None
        self._rows = 0
        self._parts: list[tuple[int, int]] = []

    def take(self) -> tuple[Any, MicroBatch | None]:
        """(micro-batch, MicroBatch); StopIteration at the end, InseparableRows before any was taken."""
        if not self._parts:
            self._batch = self._next()
            self._number += 1
            rows = trees.rows(self._torch, self._batch, self._wanted)
            if rows is None and self._number == 0 and self._wanted > self._micro:
                raise InseparableRows()
            self._rows = rows or 0
            self._parts = [(start, min(start + self._micro, self._rows)) for start in range(0, self._rows, self._micro)]
            self._count = max(1, len(self._parts))
            if self._count > 1 and not trees.cuttable(self._torch, self._batch, self._rows):
                self._count, self._parts = 1, []
                if self._number == 0:
                    raise InseparableRows()
        if self._count == 1:
            batch, self._batch, self._parts = self._batch, None, []
            return batch, MicroBatch(self._number, 0, 1, 1.0)
        start, stop = self._parts.pop(0)
        batch = trees.cut(self._torch, self._batch, self._rows, start, stop)
        place = self._count - len(self._parts) - 1
        if not self._parts:
            self._batch = None
        return batch, MicroBatch(self._number, place, self._count, (stop - start) / self._rows)


class WholePass(_Pass):
    """One pass over a loader whose batches stay as they are: they are cut where the model is called. `saw(rows)` is told
    the samples of each."""

    paced = False

    def __init__(self, torch: Torch, iterator: LoopIterator, wanted: int, saw: Callable[[int | None], None]) -> None:
        super().__init__(iterator)
        self._torch = torch
        self._wanted = wanted
        self._saw = saw
        self._left = drawn_count(iterator.loader)

    def take(self) -> tuple[Any, MicroBatch | None]:
        batch = self._next()
        rows = self._wanted if self._left is None else min(self._left, self._wanted)
        if not trees.counts(self._torch, batch, rows):
            rows = trees.rows(self._torch, batch, self._wanted)
        elif self._left is not None:
            self._left -= rows
        self._saw(rows)
        return batch, None


class CollatedPass(_Pass):
    """One pass over a loader that was made to yield micro-batches: `wanted` samples in parts of at most `micro`."""

    def __init__(self, iterator: LoopIterator, wanted: int, micro: int, paced: bool) -> None:
        super().__init__(iterator)
        self._wanted = wanted
        self._micro = micro
        self.paced = paced
        self._number, self._place, self._count = -1, 0, 0
        self._left = drawn_count(iterator.loader)

    def take(self) -> tuple[Any, MicroBatch | None]:
        batch = self._next()
        if self._place >= self._count:
            self._number += 1
            self._place = 0
            self._group = self._wanted if self._left is None else max(1, min(self._left, self._wanted))
            self._count = -(-self._group // self._micro)
            self._left = None if self._left is None else self._left - self._group
        place, self._place = self._place, self._place + 1
        rows = min(self._micro, self._group - place * self._micro)
        return batch, MicroBatch(self._number, place, self._count, rows / self._group)


class FrameworkPass(_Pass):
    """One pass over a loader whose framework accumulates by itself, and divides each loss by the full number of
    micro-batches: in the last, shorter group they count for more."""

    paced = True

    def __init__(self, torch: Torch, iterator: LoopIterator, wanted: int, micro: int, accumulation: int) -> None:
        super().__init__(iterator)
        self._torch = torch
        self._micro = micro
        self._accumulation = accumulation
        self._wanted = wanted
        self._number = -1
        self._left = drawn_count(iterator.loader)

    def take(self) -> tuple[Any, MicroBatch | None]:
        batch = self._next()
        self._number += 1
        place = self._number % self._accumulation
        if place == 0 and self._left is not None:
            self._group = min(self._left, self._wanted)
            self._left -= self._group
        rows = trees.rows(self._torch, batch, self._micro)
        weight = 1.0
        if rows and self._left is not None:
            weight = self._accumulation * rows / self._group
        return batch, MicroBatch(self._number // self._accumulation, place, self._accumulation, weight)


def rebatch(torch: Torch, loader: Loader, wanted: int, micro: int | None = None, plain: bool = False) -> None:
    """Makes the loader yield `wanted` samples a batch (in parts of `micro`); in place, so that len(loader) is right
    from here on. `plain`: with torch's own batch sampler, for frameworks that make the loader anew for each rank."""
    sampler = loader.batch_sampler
    drop_last = bool(getattr(sampler, "drop_last", loader.drop_last))
    if plain and getattr(sampler, "sampler", None) is not None:
        batches = torch.utils.data.BatchSampler(sampler.sampler, micro or wanted, drop_last)
    else:
        batches = Regrouped(sampler, wanted, drop_last, micro or wanted)
    # DataLoader forbids to assign these after its construction; its own fields are what it reads.
    object.__setattr__(loader, "batch_sampler", batches)
    if loader.batch_size is not None:
        object.__setattr__(loader, "batch_size", batches.batch_size)
    object.__setattr__(loader, "_iterator", None)


class Regrouped:
    """A batch sampler's samples in its own order: groups of `wanted`, each in parts of at most `micro`."""

    def __init__(self, sampler: Any, wanted: int, drop_last: bool, micro: int) -> None:
        self.source = sampler
        #: The sampler of single samples, which frameworks look for to shuffle and to split between ranks.
        self.sampler: Any = getattr(sampler, "sampler", None)
        self.batch_size = micro
        self.drop_last = drop_last
        self._wanted = wanted

    def __iter__(self) -> Iterator[list[Any]]:
        group: list[Any] = []
        for index in self._indices():
            group.append(index)
            if len(group) == self._wanted:
                yield from self._parts(group)
                group = []
        if group and not self.drop_last:
            yield from self._parts(group)

    def _indices(self) -> Iterator[Any]:
        if self.sampler is not None:
            yield from self.sampler
        else:
            for indices in self.source:
                yield from indices

    def _parts(self, group: list[Any]) -> Iterator[list[Any]]:
        for start in range(0, len(group), self.batch_size):
            yield group[start : start + self.batch_size]

    def __len__(self) -> int:
        if self.sampler is not None:
            total = len(self.sampler)
        else:
            total = len(self.source) * (getattr(self.source, "batch_size", None) or 1)
        whole, rest = divmod(total, self._wanted)
        count = whole * -(-self._wanted // self.batch_size)
        return count if self.drop_last else count + -(-rest // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        for target in (self.source, self.sampler):
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)


class EarlyRebatch:
    """Makes the training's loader yield the batches that were asked for as soon as it is made: a schedule is made of
    `len(loader)` before the loop begins. The loader is known by what a search has seen of it: its batch, and the samples of
    its data set."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._own: weakref.WeakKeyDictionary[Loader, int] = weakref.WeakKeyDictionary()

    def install(self, kind: type[Any]) -> None:
        settings = self._hook.settings
        if "micro_batch" not in settings.knobs or None in (
            settings.micro_batch,
            settings.own_batch,
            settings.own_samples,
        ):
            return
        original = kind.__init__
        made = self._made

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            made(self)

        kind.__init__ = __init__

    def own_batch(self, loader: Loader) -> int | None:
        """What the script asked it for."""
        return self._own.get(loader) or own_batch(loader)

    def _made(self, loader: Loader) -> None:
        settings = self._hook.settings
        if "micro_batch" in self._hook.native or loader.batch_sampler is None:
            return
        if own_batch(loader) != settings.own_batch or sample_count(loader) != settings.own_samples:
            return
        own, wanted = own_batch(loader), settings.wanted
        if own is not None and wanted != own:
            self._own[loader] = own
            rebatch(self._instruments.torch, loader, wanted)
