"""Batches of any size for probes, made of the data set's own samples by the loader's own collate function.

Real samples, since shapes matter; the longest that a short look finds, so that the size found does not run out of
memory on a long sentence at step 9,000.
"""

from __future__ import annotations

import itertools
import random
import time
import weakref

from ..report.exceptions import is_oom
from ..watch import trees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..instruments import Instruments
    from ..types import Call, Loader, Torch
    from ..watch.loader import LoopIterator


#: Samples looked at to see whether lengths vary, and the most that are looked at if they do.
FIRST_LOOK, LONG_LOOK, LONG_LOOK_SECONDS = 24, 20000, 2.0
#: Samples of one batch that are read; others repeat them.
KEPT = 256
#: Indices drawn from the sampler.
DRAWN = 65536


class Unsuitable(Exception):
    """No batch of another size can be made from this loader."""


class Source:
    """make(n): a batch of n samples, as the loop would get it."""

    #: True: each batch is made anew, as a loader without workers does it in the training process.
    fresh = False
    variable = False
    #: False: samples of different lengths cannot be in one batch; the loader never asks for that (it draws by length).
    mixed = True
    _collate: Call

    def make(self, count: int) -> Any:
        raise NotImplementedError

    def _join(self, samples: list[Any], count: int) -> Any:
        """The loader's own collation of `count` samples, those that there are over and over."""
        if not self.mixed:
            samples = samples[:1]
        return self._collate([trees.fresh(sample) for sample in itertools.islice(itertools.cycle(samples), count)])

    def _mixes(self, longest: Any, shortest: Any) -> bool:
        try:
            self._collate([trees.fresh(longest), trees.fresh(shortest)])
        except Exception as error:
            if is_oom(error):
                raise
            return False
        return True

    def draw(self, count: int, turn: int) -> Any:
        """A batch as a shuffled loader would give it, another one for each turn: not the longest samples."""
        return self.make(count)


class MapSource(Source):
    def __init__(self, loader: Loader, refetch: bool) -> None:
        self._dataset = loader.dataset
        self._collate = loader.collate_fn
        self._refetch = refetch
        self.fresh = refetch
        self._indices = self._choose(_drawn_indices(loader))
        if self.variable:
            self.mixed = self._mixes(*self._fetch([self._indices[0], self._indices[-1]]))
        self._kept: dict[Any, Any] = {}

    def _choose(self, drawn: list[Any]) -> list[Any]:
        if not drawn:
            raise Unsuitable("the data set is empty")
        look = _spread(drawn, FIRST_LOOK)
        sizes = {index: trees.weight(self._dataset[index]) for index in look}
        if len(set(sizes.values())) <= 1:
            return drawn
        self.variable = True
        until = time.monotonic() + LONG_LOOK_SECONDS
        look = _spread(drawn, LONG_LOOK)
        # When time is up, all parts of a data set that is sorted by length must have been looked at.
        random.Random(0).shuffle(look)
        for index in look:
            if time.monotonic() > until:
                break
            if index not in sizes:
                sizes[index] = trees.weight(self._dataset[index])
        return sorted(sizes, key=lambda index: -sizes[index])

    def make(self, count: int) -> Any:
        indices = list(itertools.islice(itertools.cycle(self._indices), count))
        if self._refetch:
            return self._join(self._fetch(indices), count)
        # Each sample once: repeating a reference costs nothing, decoding an image again does.
        distinct = indices[: min(count, len(self._indices), KEPT)]
        missing = [index for index in distinct if index not in self._kept]
        if missing:
            self._kept.update(zip(missing, self._fetch(missing)))
        return self._join([self._kept[index] for index in distinct], count)

    def draw(self, count: int, turn: int) -> Any:
        distinct = random.Random(turn).sample(self._indices, min(count, len(self._indices), KEPT))
        return self._join(self._fetch(distinct), count)

    def _fetch(self, indices: list[Any]) -> list[Any]:
        together: Any = getattr(self._dataset, "__getitems__", None)
        if callable(together):
            found: Any = together(indices)
            return found
        return [self._dataset[index] for index in indices]


class IterableSource(Source):
    def __init__(self, loader: Loader, refetch: bool) -> None:
        self._collate = loader.collate_fn
        self.fresh = refetch
        until = time.monotonic() + LONG_LOOK_SECONDS
        samples: list[Any] = []
        for sample in loader.dataset:
            samples.append(sample)
            if len(samples) >= KEPT or (len(samples) >= FIRST_LOOK and time.monotonic() > until):
                break
        if not samples:
            raise Unsuitable("the data set is empty")
        sizes = [trees.weight(sample) for sample in samples]
        self.variable = len(set(sizes)) > 1
        if self.variable:
            order = sorted(range(len(samples)), key=lambda place: -sizes[place])
            samples = [samples[place] for place in order]
            self.mixed = self._mixes(samples[0], samples[-1])
        self._samples = samples

    def make(self, count: int) -> Any:
        return self._join(self._samples, count)

    def draw(self, count: int, turn: int) -> Any:
        drawn = random.Random(turn).sample(self._samples, len(self._samples))
        return self._join(drawn, count)


class BatchSource(Source):
    """The data set yields whole batches: rows of a real one are repeated."""

    def __init__(self, torch: Torch, batch: Any) -> None:
        self._torch = torch
        self._batch = batch
        rows = trees.rows(torch, batch)
        if rows is None:
            raise Unsuitable("the loader yields batches that cannot be cut into rows")
        self.rows = rows

    def make(self, count: int) -> Any:
        return trees.repeat(self._torch, self._batch, self.rows, count)


def _drawn_indices(loader: Loader) -> list[Any]:
    if loader.batch_size is not None or type(loader.batch_sampler).__name__ == "BatchSampler":
        indices = iter(loader.sampler)
    else:
        indices = itertools.chain.from_iterable(loader.batch_sampler)
    return list(itertools.islice(indices, DRAWN))


def _spread(items: list[Any], count: int) -> list[Any]:
    """At most `count` of the items, evenly spread."""
    stride = max(1, len(items) // count)
    return items[::stride][:count]


def find_source(torch: Torch, loader: Loader, iterate: Callable[[], Iterator[Any]], on_cpu: bool) -> Source:
    """A source of batches for `loader`. `iterate()` gives its real iterator. Raises Unsuitable."""
    batched = loader.batch_sampler is None
    # Memory of the fetch counts where the host is the device and the training process does the fetching.
    refetch = on_cpu and loader.num_workers == 0
    try:
        if batched:
            return BatchSource(torch, next(iterate()))
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            source = IterableSource(loader, refetch)
        else:
            source = MapSource(loader, refetch)
        source.make(1)
        return source
    except Unsuitable:
        raise
    except StopIteration:
        raise Unsuitable("the loader is empty") from None
    except Exception as error:
        if is_oom(error):
            raise
        return _from_real_batch(torch, iterate, error)


def _from_real_batch(torch: Torch, iterate: Callable[[], Iterator[Any]], error: Exception) -> Source:
    """The data set cannot be read from here (it needs its workers' set-up, say): a real batch still can."""
    try:
        return BatchSource(torch, next(iterate()))
    except StopIteration:
        raise Unsuitable("the loader is empty") from None
    except Unsuitable:
        raise Unsuitable("%s: %s" % (type(error).__name__, error)) from error


class Feed:
    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._sources: weakref.WeakKeyDictionary[Loader, Source] = weakref.WeakKeyDictionary()
        self._cached: dict[tuple[int, int], Any] = {}

    def knows(self, loader: Loader) -> bool:
        return loader in self._sources

    def source(self, iterator: LoopIterator) -> Source:
        """Raises Unsuitable where no other batches can be made."""
        source = self._sources.get(iterator.loader)
        if source is None:
            memory = self._instruments.memory
            on_cpu = memory is not None and memory.device == "cpu"
            source = find_source(self._instruments.torch, iterator.loader, iterator.another, on_cpu)
            self._sources[iterator.loader] = source
        return source

    @property
    def variable(self) -> bool:
        """Samples differ in length: batches of the longest are not all that a training run will see."""
        return any(source.variable for source in self._sources.values())

    def batch(self, iterator: LoopIterator, size: int, turn: int | None = None) -> Any:
        """The longest samples, or (`turn`) some that a shuffled loader might give at that step."""
        source = self.source(iterator)
        if turn is not None:
            return source.draw(size, turn)
        if source.fresh:
            return source.make(size)
        key = (id(source), size)
        if key not in self._cached:
            self._cached[key] = source.make(size)
        return self._cached[key]

    def drop(self, loader: Loader) -> None:
        self._sources.pop(loader, None)

    def clear(self) -> None:
        """Batches of the size before must be gone before the next size is measured."""
        self._cached = {}
