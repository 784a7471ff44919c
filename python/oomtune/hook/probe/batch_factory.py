"""Makes batches of any size for probes, of the data set's own samples with the loader's own collate function.

Real samples, since shapes matter; the longest that a quick search finds, so that the answer does not run out of memory on a
long sentence at step 9,000.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time

from ..report.exceptions import is_oom
from ..watch import batch_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Generator, Iterator

    from ..fork.findings import Findings
    from ..types import Call, Loader, Torch

    Size = Callable[[Any], int]


#: Samples read to see whether lengths vary; if they do, the most samples and seconds spent to find the longest.
FIRST_LOOK, LONG_LOOK, LONG_LOOK_SECONDS = 24, 20000, 2.0
#: The most distinct samples in a batch; the others repeat them. Where all are of one length, no more than can be read in so many seconds.
KEPT, ALIKE_SECONDS = 256, 0.25
#: The most indices drawn from the sampler.
DRAWN = 65536


class UnsuitableLoader(Exception):
    """No batch of another size can be made from this loader. The text says why."""


class BatchFactory:
    """Makes batches as the loop would get them."""

    #: True: each batch is made anew, as a loader without workers makes it in the training process.
    uncached = False
    #: Samples differ in length.
    variable_length = False
    #: False: samples of different lengths cannot share a batch (the loader draws by length).
    mixes_lengths = True

    def __init__(self, torch: Torch, loader: Loader) -> None:
        self._torch = torch
        self._collate: Call = loader.collate_fn
        self._has_workers = loader.num_workers > 0

    @contextlib.contextmanager
    def _threads(self) -> Generator[None, None, None]:
        """Within it torch has as many threads as where the loader makes its batches: one in a worker. More would contend with the workers
        and with every other process."""
        threads = self._torch.get_num_threads()
        if self._has_workers:
            self._torch.set_num_threads(1)
        try:
            yield
        finally:
            if self._has_workers:
                self._torch.set_num_threads(threads)

    def make(self, count: int) -> Any:
        raise NotImplementedError

    def _join(self, samples: list[Any], count: int) -> Any:
        """Collates `count` samples, repeating those given."""
        if not self.mixes_lengths:
            samples = samples[:1]
        copies = [batch_tree.copy_containers(sample) for sample in itertools.islice(itertools.cycle(samples), count)]
        with self._threads():
            return self._collate(copies)

    def _mixes(self, longest: Any, shortest: Any) -> bool:
        try:
            self._collate([batch_tree.copy_containers(longest), batch_tree.copy_containers(shortest)])
        except Exception as error:
            if is_oom(error):
                raise
            return False
        return True

    def draw(self, count: int, turn: int) -> Any:
        """A batch of random samples instead of the longest, as a shuffled loader would give it: another one for each `turn`."""
        return self.make(count)

    def shorter(self, count: int, part: float) -> Any:
        """A batch of the longest samples that have at most this part of the data of the very longest."""
        return self.make(count)


class MapDatasetFactory(BatchFactory):
    """`findings`: what other processes of the same script have found out."""

    def __init__(self, torch: Torch, loader: Loader, refetch: bool, size: Size, findings: Findings | None) -> None:
        super().__init__(torch, loader)
        self._size = size
        self._dataset = loader.dataset
        self._refetch = refetch
        self.uncached = refetch
        self._kept: dict[Any, Any] = {}
        self._most = KEPT
        with self._threads():
            self._indices = self._choose(_drawn_indices(loader), findings)
        if self.variable_length:
            self.mixes_lengths = self._mixes(*self._fetch([self._indices[0], self._indices[-1]]))

    def _choose(self, drawn: list[Any], findings: Findings | None) -> list[Any]:
        if not drawn:
            raise UnsuitableLoader("the data set is empty")
        look = _spread(drawn, FIRST_LOOK)
        begun = time.monotonic()
        samples = {index: self._dataset[index] for index in look}
        each = (time.monotonic() - begun) / len(look)
        sizes = {index: self._size(sample) for index, sample in samples.items()}
        if len(set(sizes.values())) <= 1:
            if self._refetch:
                return drawn
            self._kept = samples
            self._most = max(len(samples), min(KEPT, int(ALIKE_SECONDS / each) if each else KEPT))
            return [*samples, *(index for index in drawn if index not in samples)]
        self.variable_length = True
        known = None if findings is None else findings.get(self._key(drawn))
        if known is None or any(known.get(index) != size for index, size in sizes.items()):
            self._look_long(drawn, sizes)
            if findings is not None:
                findings.put(self._key(drawn), sizes)
            known = sizes
        self._sizes = known
        return sorted(known, key=lambda index: -known[index])

    def _key(self, drawn: list[Any]) -> str:
        return "%s of %d" % (type(self._dataset).__name__, len(drawn))

    def _look_long(self, drawn: list[Any], sizes: dict[Any, int]) -> None:
        until = time.monotonic() + LONG_LOOK_SECONDS
        look = _spread(drawn, LONG_LOOK)
        # Shuffled, as the data set may be sorted by length, and time may run out.
        random.Random(0).shuffle(look)
        for index in look:
            if time.monotonic() > until:
                break
            if index not in sizes:
                sizes[index] = self._size(self._dataset[index])

    def make(self, count: int) -> Any:
        indices = list(itertools.islice(itertools.cycle(self._indices), count))
        if self._refetch:
            return self._join(self._fetch(indices), count)
        # Reads each sample once: decoding an image again takes time.
        distinct = indices[: min(count, len(self._indices), self._most)]
        missing = [index for index in distinct if index not in self._kept]
        if missing:
            self._kept.update(zip(missing, self._fetch(missing)))
        return self._join([self._kept[index] for index in distinct], count)

    def draw(self, count: int, turn: int) -> Any:
        distinct = random.Random(turn).sample(self._indices, min(count, len(self._indices), KEPT))
        return self._join(self._fetch(distinct), count)

    def shorter(self, count: int, part: float) -> Any:
        if not self.variable_length:
            return self.make(count)
        found = [index for index in self._indices if self._sizes[index] <= part * self._sizes[self._indices[0]]]
        distinct = (found or self._indices[-1:])[: min(count, KEPT)]
        return self._join(self._fetch(distinct), count)

    def _fetch(self, indices: list[Any]) -> list[Any]:
        together: Any = getattr(self._dataset, "__getitems__", None)
        with self._threads():
            if callable(together):
                found: Any = together(indices)
                return found
            return [self._dataset[index] for index in indices]


class IterableDatasetFactory(BatchFactory):
    def __init__(self, torch: Torch, loader: Loader, refetch: bool, size: Size) -> None:
        super().__init__(torch, loader)
        self.uncached = refetch
        begun = time.monotonic()
        samples: list[Any] = []
        sizes: list[int] = []
        with self._threads():
            for sample in loader.dataset:
                samples.append(sample)
                sizes.append(size(sample))
                self.variable_length = self.variable_length or sizes[-1] != sizes[0]
                if len(samples) >= KEPT:
                    break
                seconds = LONG_LOOK_SECONDS if self.variable_length else ALIKE_SECONDS
                if len(samples) >= FIRST_LOOK and time.monotonic() - begun > seconds:
                    break
        if not samples:
            raise UnsuitableLoader("the data set is empty")
        if self.variable_length:
            order = sorted(range(len(samples)), key=lambda index: -sizes[index])
            samples = [samples[index] for index in order]
            self._sizes = [sizes[index] for index in order]
            self.mixes_lengths = self._mixes(samples[0], samples[-1])
        self._samples = samples

    def make(self, count: int) -> Any:
        return self._join(self._samples, count)

    def draw(self, count: int, turn: int) -> Any:
        drawn = random.Random(turn).sample(self._samples, len(self._samples))
        return self._join(drawn, count)

    def shorter(self, count: int, part: float) -> Any:
        if not self.variable_length:
            return self.make(count)
        found = [sample for sample, size in zip(self._samples, self._sizes) if size <= part * self._sizes[0]]
        return self._join(found or self._samples[-1:], count)


class RepeatedBatchFactory(BatchFactory):
    """For data sets that yield whole batches: repeats the rows of a real one."""

    def __init__(self, torch: Torch, loader: Loader, batch: Any) -> None:
        super().__init__(torch, loader)
        self._batch = batch
        rows = batch_tree.row_count(torch, batch)
        if rows is None:
            raise UnsuitableLoader("the loader yields batches that cannot be cut into rows")
        self.rows = rows

    def make(self, count: int) -> Any:
        with self._threads():
            return batch_tree.repeat_rows(self._torch, self._batch, self.rows, count)


def _drawn_indices(loader: Loader) -> list[Any]:
    if loader.batch_size is not None or type(loader.batch_sampler).__name__ == "BatchSampler":
        indices = iter(loader.sampler)
    else:
        indices = itertools.chain.from_iterable(loader.batch_sampler)
    return list(itertools.islice(indices, DRAWN))


def _spread(items: list[Any], count: int) -> list[Any]:
    """At most `count` of the items, evenly spaced."""
    stride = max(1, len(items) // count)
    return items[::stride][:count]


def find_factory(
    torch: Torch,
    loader: Loader,
    iterate: Callable[[], Iterator[Any]],
    on_cpu: bool,
    size: Size = batch_tree.data_size,
    findings: Findings | None = None,
) -> BatchFactory:
    """The factory for `loader`. `iterate()` makes a real iterator; `size(sample)`: how long a sample is; `findings`: what other
    processes of the script have found out. Raises UnsuitableLoader."""
    batched = loader.batch_sampler is None
    # On the CPU, what fetching takes in the training process is part of the peak.
    refetch = on_cpu and loader.num_workers == 0
    try:
        if batched:
            return RepeatedBatchFactory(torch, loader, next(iterate()))
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            factory = IterableDatasetFactory(torch, loader, refetch, size)
        else:
            factory = MapDatasetFactory(torch, loader, refetch, size, findings)
        factory.make(1)
        return factory
    except UnsuitableLoader:
        raise
    except StopIteration:
        raise UnsuitableLoader("the loader is empty") from None
    except Exception as error:
        if is_oom(error):
            raise
        return _from_real_batch(torch, loader, iterate, error)


def _from_real_batch(
    torch: Torch, loader: Loader, iterate: Callable[[], Iterator[Any]], error: Exception
) -> BatchFactory:
    """Uses a real batch if the data set cannot be read from here (it needs its workers' set-up, say)."""
    try:
        return RepeatedBatchFactory(torch, loader, next(iterate()))
    except StopIteration:
        raise UnsuitableLoader("the loader is empty") from None
    except UnsuitableLoader:
        raise UnsuitableLoader("%s: %s" % (type(error).__name__, error)) from error
