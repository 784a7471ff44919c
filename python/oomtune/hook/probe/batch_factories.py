"""The batch factories of a loop, one for each of its loaders, and the batches that they have made."""

from __future__ import annotations

import weakref

from ..watch import batch_tree
from .batch_factory import find_factory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..types import Loader
    from ..watch.loader import LoaderIterator
    from .batch_factory import BatchFactory


class BatchFactories:
    """A factory for each of the loaders of a loop."""

    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._by_loader: weakref.WeakKeyDictionary[Loader, BatchFactory] = weakref.WeakKeyDictionary()
        #: By size: what each has made. A loop may make a loader anew for each pass, whose batches end with it.
        self._cached: weakref.WeakKeyDictionary[BatchFactory, dict[int, Any]] = weakref.WeakKeyDictionary()

    def knows(self, loader: Loader) -> bool:
        return loader in self._by_loader

    def factory(self, iterator: LoaderIterator) -> BatchFactory:
        """The factory for the iterator's loader. Raises UnsuitableLoader."""
        factory = self._by_loader.get(iterator.loader)
        if factory is None:
            memory = self._instrumentation.memory
            on_cpu = memory is not None and memory.device == "cpu"
            size = batch_tree.unpadded_size if self._hook.settings.counts_tokens else batch_tree.data_size
            torch = self._instrumentation.torch
            fork_point = self._hook.fork_point
            findings = None if fork_point is None else fork_point.findings
            factory = find_factory(torch, iterator.loader, iterator.second_iterator, on_cpu, size, findings)
            self._by_loader[iterator.loader] = factory
        return factory

    @property
    def variable_length(self) -> bool:
        """Samples differ in length: training also sees shorter batches than those of the longest."""
        return any(factory.variable_length for factory in self._by_loader.values())

    @property
    def alone(self) -> bool:
        """One loader gives the loop all of its batches."""
        return len(self._by_loader) == 1

    def batch(self, iterator: LoaderIterator, size: int, turn: int | None = None, part: float = 1.0) -> Any:
        """A batch of the longest samples; with `turn`, of those that a shuffled loader might give at that step, or of the
        longest that have at most this part of the data of the very longest."""
        factory = self.factory(iterator)
        if turn is not None:
            # Two steps apart, as only every other step has a turn.
            return factory.shorter(size, part) if part < 1 and turn % 4 == 1 else factory.draw(size, turn)
        if factory.uncached:
            return factory.make(size)
        made = self._cached.setdefault(factory, {})
        if size not in made:
            made[size] = factory.make(size)
        return made[size]

    def drop(self, loader: Loader) -> None:
        self._by_loader.pop(loader, None)

    def clear(self) -> None:
        """Frees the cached batches, before another size is measured."""
        self._cached.clear()
