"""Where the user's loop asks for batches. Everything that iterates a DataLoader goes through its `__iter__`: plain
loops, tqdm, `next(iter(loader))`, accelerate, Lightning."""

import functools


class Port:
    """The iterator that a loop gets. `guide.next(port)` gives the batches of a loop that it takes over."""

    def __init__(self, loader, make, guide, eager):
        self.loader = loader
        self._make = make
        self._guide = guide
        # Making an iterator draws a random number: in a run that counts it is made where the script makes it.
        self._real = make() if eager else None
        self._begun = False
        #: The real iterator came to its end.
        self.finished = False

    def __iter__(self):
        return self

    def __next__(self):
        if self._begun and self._guide.keeps_out(self):
            return self.next_real()
        if self._guide.takes(self):
            return self._guide.next(self)
        return self.next_real()

    def __len__(self):
        return len(self.loader)

    def real(self):
        if self._real is None:
            self._real = self._make()
        return self._real

    def next_real(self):
        self._begun = True
        try:
            return next(self.real())
        except StopIteration:
            self.finished = True
            raise

    def renew(self):
        """The loader was changed: what was made of it before is out of date."""
        self._real = self._make()

    def another(self):
        """A real iterator of its own, for a look at the data."""
        return self._make()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)


def patch_loader(torch, guide, eager):
    """`guide.watches(loader)` says whether the loop over it gets a Port; if not nothing at all changes."""
    kind = torch.utils.data.DataLoader
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self):
        if torch.utils.data.get_worker_info() is not None or not guide.watches(self):
            return original(self)
        return Port(self, functools.partial(original, self), guide, eager)

    kind.__iter__ = __iter__
