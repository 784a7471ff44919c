"""Batches of other sizes from the user's own loader: the same samples in the same order."""

from __future__ import annotations

import functools
import weakref

from ..watch import batch_tree
from ..watch.loader import batch_and_samples, drawn_count, drops_last, own_batch
from .gradient_accumulator import MicroBatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..instrumentation import Instrumentation
    from ..types import Loader, Torch
    from ..watch.loader import LoaderIterator


class InseparableRows(Exception):
    """The loader's batches cannot be sliced into rows."""


class _LoaderBatches:
    """The batches of one pass over a loader. The iterator holds a reference to it, hence the weak one back."""

    def __init__(self, iterator: LoaderIterator) -> None:
        self._iterator = weakref.ref(iterator)

    def _next(self) -> Any:
        iterator = self._iterator()
        assert iterator is not None  # it is the caller
        return iterator.next_real()


class SlicedBatches(_LoaderBatches):
    """The loader's batches sliced into micro-batches of at most `micro` samples, in order."""

    def __init__(self, torch: Torch, iterator: LoaderIterator, wanted: int, micro: int, leading: bool) -> None:
        super().__init__(iterator)
        self._torch = torch
        self._wanted = wanted
        self._micro = micro
        self.leading = leading
        self._number = -1
        self._batch = None
        self._rows = 0
        self._parts: list[tuple[int, int]] = []

    def take(self) -> tuple[Any, MicroBatch | None]:
        """(samples, MicroBatch). Raises StopIteration at the end, and InseparableRows at the first batch only."""
        if not self._parts:
            self._batch = self._next()
            self._number += 1
            rows = batch_tree.row_count(self._torch, self._batch, self._wanted)
            if rows is None and self._number == 0 and self._wanted > self._micro:
                raise InseparableRows()
            self._rows = rows or 0
            self._parts = [(start, min(start + self._micro, self._rows)) for start in range(0, self._rows, self._micro)]
            self._count = max(1, len(self._parts))
            if self._count > 1 and not batch_tree.all_have_rows(self._torch, self._batch, self._rows):
                self._count, self._parts = 1, []
                if self._number == 0:
                    raise InseparableRows()
        if self._count == 1:
            batch, self._batch, self._parts = self._batch, None, []
            return batch, MicroBatch(self._number, 0, 1, 1.0)
        start, stop = self._parts.pop(0)
        batch = batch_tree.slice_rows(self._torch, self._batch, self._rows, start, stop)
        index = self._count - len(self._parts) - 1
        if not self._parts:
            self._batch = None
        return batch, MicroBatch(self._number, index, self._count, (stop - start) / self._rows)


class WholeBatches(_LoaderBatches):
    """The loader's batches as they are: they are cut at the model's call. `saw(rows)` is told the samples of each."""

    leading = False

    def __init__(self, torch: Torch, iterator: LoaderIterator, wanted: int, saw: Callable[[int | None], None]) -> None:
        super().__init__(iterator)
        self._torch = torch
        self._wanted = wanted
        self._saw = saw
        self._left = drawn_count(iterator.loader)

    def take(self) -> tuple[Any, MicroBatch | None]:
        batch = self._next()
        rows = self._wanted if self._left is None else min(self._left, self._wanted)
        if not batch_tree.has_row_count(self._torch, batch, rows):
            rows = batch_tree.row_count(self._torch, batch, self._wanted)
        elif self._left is not None:
            self._left -= rows
        self._saw(rows)
        return batch, None


class CollatedBatches(_LoaderBatches):
    """The batches of a loader that yields micro-batches itself: `wanted` samples in parts of at most `micro`."""

    def __init__(self, iterator: LoaderIterator, wanted: int, micro: int, leading: bool) -> None:
        super().__init__(iterator)
        self._wanted = wanted
        self._micro = micro
        self.leading = leading
        self._number, self._index, self._count = -1, 0, 0
        self._left = drawn_count(iterator.loader)

    def take(self) -> tuple[Any, MicroBatch | None]:
        batch = self._next()
        if self._index >= self._count:
            self._number += 1
            self._index = 0
            self._group = self._wanted if self._left is None else max(1, min(self._left, self._wanted))
            self._count = -(-self._group // self._micro)
            self._left = None if self._left is None else self._left - self._group
        index, self._index = self._index, self._index + 1
        rows = min(self._micro, self._group - index * self._micro)
        return batch, MicroBatch(self._number, index, self._count, rows / self._group)


class FrameworkBatches(_LoaderBatches):
    """The micro-batches of a framework that accumulates itself and divides each loss by the full number of micro-batches: in the
    last, shorter group they weigh more."""

    leading = True

    def __init__(self, torch: Torch, iterator: LoaderIterator, wanted: int, micro: int, accumulation: int) -> None:
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
        index = self._number % self._accumulation
        if index == 0 and self._left is not None:
            self._group = min(self._left, self._wanted)
            self._left -= self._group
        rows = batch_tree.row_count(self._torch, batch, self._micro)
        weight = 1.0
        if rows and self._left is not None:
            weight = self._accumulation * rows / self._group
        return batch, MicroBatch(self._number // self._accumulation, index, self._accumulation, weight)


def rebatch(torch: Torch, loader: Loader, wanted: int, micro: int | None = None, plain: bool = False) -> None:
    """Makes the loader yield `wanted` samples per batch (in parts of `micro`); in place, so that len(loader) is right from now
    on. `plain`: with torch's own batch sampler, for frameworks that make the loader anew for each rank."""
    sampler = loader.batch_sampler
    if plain and getattr(sampler, "sampler", None) is not None:
        batches = torch.utils.data.BatchSampler(sampler.sampler, micro or wanted, drops_last(loader))
    else:
        batches = Regrouped(sampler, wanted, drops_last(loader), micro or wanted)
    # DataLoader forbids assigning these after its construction.
    object.__setattr__(loader, "batch_sampler", batches)
    if loader.batch_size is not None:
        object.__setattr__(loader, "batch_size", batches.batch_size)
    object.__setattr__(loader, "_iterator", None)


class Regrouped:
    """A batch sampler with the samples and order of another: groups of `wanted`, each in parts of at most `micro`."""

    def __init__(self, sampler: Any, wanted: int, drop_last: bool, micro: int) -> None:
        self.source = sampler
        #: The sampler of single samples, which frameworks use to shuffle and to split between ranks.
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
        size = getattr(self.source, "batch_size", None)
        if self.sampler is not None:
            total = len(self.sampler)
        elif size:
            total = len(self.source) * size
        else:
            raise TypeError(
                "how many batches of %d the loader has is not known, as its batch sampler tells of no size: "
                "without --effective-batch they stay as they are" % self._wanted
            )
        whole, rest = divmod(total, self._wanted)
        count = whole * -(-self._wanted // self.batch_size)
        return count if self.drop_last else count + -(-rest // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        for target in (self.source, self.sampler):
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)


class EarlyRebatch:
    """Changes the training loader's batch size as soon as it is made: schedules are made from `len(loader)` before the loop
    begins. Recognises the loader by its batch size and number of samples, as a search has seen them."""

    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
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
        """The loader's batch size as the script made it."""
        return self._own.get(loader) or own_batch(loader)

    def _made(self, loader: Loader) -> None:
        settings = self._hook.settings
        if "micro_batch" in self._hook.native or loader.batch_sampler is None:
            return
        if batch_and_samples(loader) != (settings.own_batch, settings.own_samples):
            return
        own, wanted = own_batch(loader), settings.wanted
        if own is not None and wanted != own:
            self._own[loader] = own
            rebatch(self._instrumentation.torch, loader, wanted)
