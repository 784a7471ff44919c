"""Batches of any size for probes, made of the data set's own samples by the loader's own collate function.

Real samples, since shapes matter; the longest that a short look finds, so that the size found does not run out of
memory on a long sentence at step 9,000.
"""

import itertools
import random
import time

from . import trees

#: Samples looked at to see whether lengths vary, and the most that are looked at if they do.
FIRST_LOOK, LONG_LOOK, LONG_LOOK_SECONDS = 24, 20000, 2.0
#: Samples of one batch that are read; others repeat them.
KEPT = 256
#: Indices drawn from the sampler.
DRAWN = 65536


class Unsuitable(Exception):
    """No batch of another size can be made from this loader."""


def own_batch(loader):
    """Samples in a batch as the script asks for it; None if the loader does not say."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    size = getattr(loader.batch_sampler, "batch_size", None)
    return int(size) if isinstance(size, int) and size > 0 else None


def sample_count(loader):
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def drawn_count(loader):
    """Samples that one pass over the loader draws; None if it cannot be told."""
    sampler = getattr(loader.batch_sampler, "sampler", None)
    try:
        return len(loader.sampler if sampler is None else sampler)
    except (TypeError, NotImplementedError):
        return None


class Source:
    """make(n): a batch of n samples, as the loop would get it."""

    #: True: each batch is made anew, as a loader without workers does it in the training process.
    fresh = False
    variable = False
    #: False: samples of different lengths cannot be in one batch; the loader never asks for that (it draws by length).
    mixed = True

    def make(self, count):
        raise NotImplementedError

    def _join(self, samples, count):
        """The loader's own collation of `count` samples, those that there are over and over."""
        if not self.mixed:
            samples = samples[:1]
        return self._collate([trees.fresh(sample) for sample in itertools.islice(itertools.cycle(samples), count)])

    def _mixes(self, longest, shortest):
        try:
            self._collate([trees.fresh(longest), trees.fresh(shortest)])
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return False
        return True

    def draw(self, count, turn):
        """A batch as a shuffled loader would give it, another one for each turn: not the longest samples."""
        return self.make(count)


class MapSource(Source):
    def __init__(self, loader, refetch):
        self._dataset = loader.dataset
        self._collate = loader.collate_fn
        self._refetch = refetch
        self.fresh = refetch
        self._indices = self._choose(_drawn_indices(loader))
        if self.variable:
            self.mixed = self._mixes(*self._fetch([self._indices[0], self._indices[-1]]))
        self._kept = {}

    def _choose(self, drawn):
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

    def make(self, count):
        indices = list(itertools.islice(itertools.cycle(self._indices), count))
        if self._refetch:
            return self._join(self._fetch(indices), count)
        # Each sample once: repeating a reference costs nothing, decoding an image again does.
        distinct = indices[: min(count, len(self._indices), KEPT)]
        missing = [index for index in distinct if index not in self._kept]
        if missing:
            self._kept.update(zip(missing, self._fetch(missing)))
        return self._join([self._kept[index] for index in distinct], count)

    def draw(self, count, turn):
        distinct = random.Random(turn).sample(self._indices, min(count, len(self._indices), KEPT))
        return self._join(self._fetch(distinct), count)

    def _fetch(self, indices):
        together = getattr(self._dataset, "__getitems__", None)
        if callable(together):
            return together(indices)
        return [self._dataset[index] for index in indices]


class IterableSource(Source):
    def __init__(self, loader, refetch):
        self._collate = loader.collate_fn
        self.fresh = refetch
        until = time.monotonic() + LONG_LOOK_SECONDS
        samples = []
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

    def make(self, count):
        return self._join(self._samples, count)

    def draw(self, count, turn):
        drawn = random.Random(turn).sample(self._samples, len(self._samples))
        return self._join(drawn, count)


class BatchSource(Source):
    """The data set yields whole batches: rows of a real one are repeated."""

    def __init__(self, torch, batch):
        self._torch = torch
        self._batch = batch
        self.rows = trees.rows(torch, batch)
        if self.rows is None:
            raise Unsuitable("the loader yields batches that cannot be cut into rows")

    def make(self, count):
        return trees.repeat(self._torch, self._batch, self.rows, count)


def _drawn_indices(loader):
    if loader.batch_size is not None or type(loader.batch_sampler).__name__ == "BatchSampler":
        indices = iter(loader.sampler)
    else:
        indices = itertools.chain.from_iterable(loader.batch_sampler)
    return list(itertools.islice(indices, DRAWN))


def _spread(items, count):
    """At most `count` of the items, evenly spread."""
    stride = max(1, len(items) // count)
    return items[::stride][:count]


def find_source(torch, loader, iterate, on_cpu):
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
        if is_out_of_memory(error):
            raise
        return _from_real_batch(torch, iterate, error)


def _from_real_batch(torch, iterate, error):
    """The data set cannot be read from here (it needs its workers' set-up, say): a real batch still can."""
    try:
        return BatchSource(torch, next(iterate()))
    except StopIteration:
        raise Unsuitable("the loader is empty") from None
    except Unsuitable:
        raise Unsuitable("%s: %s" % (type(error).__name__, error)) from error


def is_out_of_memory(error):
    from .report import is_oom

    return is_oom(error)
