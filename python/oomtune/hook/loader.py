"""Where the user's loop asks for batches. Everything that iterates a DataLoader goes through its `__iter__`: plain
loops, tqdm, `next(iter(loader))`, accelerate, Lightning."""

import functools

from .randomness import Randomness


class Port:
    """The iterator that a loop gets. `guide.next(port)` gives the batches of a loop that it takes over."""

    def __init__(self, torch, loader, make, guide, eager):
        self._torch = torch
        self.loader = loader
        self._make = make
        self._guide = guide
        self._real = self._before = self._after = None
        if eager:
            # Making an iterator draws a random number: in a run that counts it is made where the script makes it.
            self._before = Randomness(torch)
            self._real = make()
            self._after = Randomness(torch)
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
        self._begin()
        try:
            return next(self.real())
        except StopIteration:
            self.finished = True
            raise

    def renew(self):
        """The loader was changed: what was made of it before is out of date. The samples come in the same order."""
        self._begin()
        if self._before is not None:
            self._before.restore()
        self._real = self._make()

    def _begin(self):
        if not self._begun:
            self._begun = True
            if self._after is not None and self._after != Randomness(self._torch):
                self._before = None  # others have drawn since: they must not draw the same again

    def another(self):
        """A real iterator of its own, for a look at the data."""
        return self._make()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)


def stateful_loader(hook, module):
    """torchdata's loader goes its own way to an iterator."""
    if hook.torch is not None:
        patch_loader(hook.torch, module.StatefulDataLoader, hook.guide, eager=not hook.settings.drives)


def patch_loader(torch, kind, guide, eager):
    """`guide.watches(loader)` says whether the loop over it gets a Port; if not nothing at all changes."""
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self):
        if torch.utils.data.get_worker_info() is not None or not guide.watches(self):
            return original(self)
        return Port(torch, self, functools.partial(original, self), guide, eager)

    kind.__iter__ = __iter__
