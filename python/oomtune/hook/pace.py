"""Which loader's batches count as rounds of the loop, where a loop draws from several side by side."""

import weakref

#: Calls of another loader in a row after which that one sets the pace.
OTHERS = 3


class Pace:
    def __init__(self):
        self._loader = None
        self._others = 0

    def loader(self):
        return None if self._loader is None else self._loader()

    def sets(self, loader):
        return self.loader() is loader

    def asked(self, loader):
        """A batch is asked of `loader`; whether that is a round of the loop."""
        if self.loader() is not None and not self.sets(loader):
            self._others += 1
            if self._others < OTHERS:
                return False
        if not self.sets(loader):
            self._loader = weakref.ref(loader)
        self._others = 0
        return True
