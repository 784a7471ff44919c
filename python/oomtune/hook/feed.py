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

    def batch(self, port, size):
        source = self.source(port)
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
