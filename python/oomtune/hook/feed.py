"""The batches of a driven loop, of the size that is asked for."""

import weakref

from . import samples


class Feed:
    def __init__(self, hook):
        self._hook = hook
        self._sources = weakref.WeakKeyDictionary()
        self._cached = {}

    def knows(self, loader):
        return loader in self._sources

    def source(self, port):
        """Raises samples.Unsuitable where no other batches can be made."""
        source = self._sources.get(port.loader)
        if source is None:
            on_cpu = self._hook.meter.device == "cpu"
            source = samples.find_source(self._hook.torch, port.loader, port.another, on_cpu)
            self._sources[port.loader] = source
        return source

    @property
    def variable(self):
        """Samples differ in length: batches of the longest are not all that a training run will see."""
        return any(source.variable for source in self._sources.values())

    def batch(self, port, size, turn=None):
        """The longest samples, or (`turn`) some that a shuffled loader might give at that step."""
        source = self.source(port)
        if turn is not None:
            return source.draw(size, turn)
        if source.fresh:
            return source.make(size)
        key = (id(source), size)
        if key not in self._cached:
            self._cached[key] = source.make(size)
        return self._cached[key]

    def drop(self, loader):
        self._sources.pop(loader, None)

    def clear(self):
        """Batches of the size before must be gone before the next size is measured."""
        self._cached = {}
