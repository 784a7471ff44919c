"""Where the user's loop asks for batches. Everything that iterates a DataLoader goes through its `__iter__`: plain
loops, tqdm, `next(iter(loader))`, accelerate, Lightning."""

from __future__ import annotations

import functools

from .randomness import Randomness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Iterator

    from ..hook import Hook
    from ..types import Controller, Loader, Torch


class LoopIterator:
    """The iterator that a loop gets. `controller.next(iterator)` gives the batches of a loop that it takes over."""

    def __init__(
        self, torch: Torch, loader: Loader, make: Callable[[], Iterator[Any]], controller: Controller, eager: bool
    ) -> None:
        self._torch = torch
        self.loader = loader
        self._make = make
        self._controller = controller
        self._real = self._before = self._after = None
        if eager:
            # Making an iterator draws a random number: in a run that counts it is made where the script makes it.
            self._before = Randomness(torch)
            self._real = make()
            self._after = Randomness(torch)
        self._begun = False
        #: The real iterator came to its end.
        self.finished = False

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self._begun and self._controller.keeps_out(self):
            return self.next_real()
        if self._controller.takes(self):
            return self._controller.next(self)
        return self.next_real()

    def __len__(self) -> int:
        return len(self.loader)

    def real(self) -> Iterator[Any]:
        if self._real is None:
            self._real = self._make()
        return self._real

    def next_real(self) -> Any:
        self._begin()
        try:
            return next(self.real())
        except StopIteration:
            self.finished = True
            raise

    def renew(self) -> None:
        """The loader was changed: what was made of it before is out of date. The samples come in the same order."""
        self._begin()
        if self._before is not None:
            self._before.restore()
        self._real = self._make()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            if self._after is not None and self._after != Randomness(self._torch):
                self._before = None  # others have drawn since: they must not draw the same again

    def another(self) -> Iterator[Any]:
        """A real iterator of its own, for a look at the data."""
        return self._make()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)


def stateful_loader(hook: Hook, module: ModuleType) -> None:
    """torchdata's loader goes its own way to an iterator."""
    if hook.instruments is not None:
        torch, controller = hook.instruments.torch, hook.instruments.controller
        patch_loader(torch, module.StatefulDataLoader, controller, eager=not hook.settings.drives)


def patch_loader(torch: Torch, kind: type[Any], controller: Controller, eager: bool) -> None:
    """`controller.watches(loader)` says whether the loop over it gets a LoopIterator; if not nothing at all changes."""
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if torch.utils.data.get_worker_info() is not None or not controller.watches(self):
            return original(self)
        return LoopIterator(torch, self, functools.partial(original, self), controller, eager)

    kind.__iter__ = __iter__


def own_batch(loader: Loader) -> int | None:
    """Samples in a batch as the script asks for it; None if the loader does not say."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    size = getattr(loader.batch_sampler, "batch_size", None)
    return int(size) if isinstance(size, int) and size > 0 else None


def sample_count(loader: Loader) -> int | None:
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def drawn_count(loader: Loader) -> int | None:
    """Samples that one pass over the loader draws; None if it cannot be told."""
    sampler = getattr(loader.batch_sampler, "sampler", None)
    try:
        return len(loader.sampler if sampler is None else sampler)
    except (TypeError, NotImplementedError):
        return None
