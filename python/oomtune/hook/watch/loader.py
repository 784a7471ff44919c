"""Replaces the iterators of DataLoaders. Everything that iterates one calls its `__iter__`: plain loops, tqdm,
`next(iter(loader))`, accelerate, Lightning."""

from __future__ import annotations

import functools

from .rng_state import HostRngState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Iterator

    from ..hook import Hook
    from ..instrumentation import Instrumentation
    from ..types import Controller, Loader, Torch


class LoaderIterator:
    """The iterator that a loop gets: its batches come from the controller or from the loader's real iterator."""

    def __init__(
        self, torch: Torch, loader: Loader, make: Callable[[], Iterator[Any]], controller: Controller, eager: bool
    ) -> None:
        self._torch = torch
        self.loader = loader
        self._make = make
        self._controller = controller
        self._real = self._before = self._after = None
        if eager:
            # Making an iterator draws a random number: a run that counts must draw it where the script does.
            self._before = HostRngState(torch)
            self._real = make()
            self._after = HostRngState(torch)
        #: A batch of the loader's own has been asked for.
        self.begun = False
        #: The real iterator has ended.
        self.finished = False
        self._given = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self._given += 1
        if self.begun and self._controller.keeps_own_batches(self):
            return self.next_real()
        if self._controller.supplies(self):
            return self._controller.next(self)
        return self.next_real()

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def past_end(self) -> bool:
        """The loop has had more batches from it than a pass over its loader has."""
        try:
            return self._given > len(self.loader)
        except (TypeError, NotImplementedError):
            return False

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
        """Makes the real iterator anew, after the loader was changed. The samples come in the same order."""
        self._begin()
        if self._before is not None:
            self._before.restore()
        self._real = self._make()

    def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            if self._after is not None and self._after != HostRngState(self._torch):
                self._before = None  # others have drawn random numbers since: they must not draw the same again

    def second_iterator(self) -> Iterator[Any]:
        """Another real iterator, to inspect the data."""
        return self._make()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)


def patch_stateful_loader(hook: Hook, module: ModuleType) -> None:
    """torchdata's loader has an `__iter__` of its own."""
    if hook.instrumentation is not None:
        patch_loader(hook.instrumentation, module.StatefulDataLoader)


def patch_loader(instrumentation: Instrumentation, kind: type[Any]) -> None:
    """Loops get a LoaderIterator if `controller.wraps(loader)`; otherwise nothing changes. In a job its real iterator is made at once."""
    torch, settings = instrumentation.torch, instrumentation.hook.settings
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        controller = instrumentation.controller
        if torch.utils.data.get_worker_info() is not None or not controller.wraps(self):
            return original(self)
        return LoaderIterator(torch, self, functools.partial(original, self), controller, eager=not settings.probing)

    kind.__iter__ = __iter__


def own_batch(loader: Loader) -> int | None:
    """Samples in a batch as the script made the loader; None if unknown."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    size = getattr(loader.batch_sampler, "batch_size", None)
    return int(size) if isinstance(size, int) and size > 0 else None


def sample_count(loader: Loader) -> int | None:
    """Samples of the data set; None if unknown, as where it makes the batches itself (`batch_size=None`): it counts those."""
    if _batch_sampler(loader) is None:
        return None
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def batch_and_samples(loader: Loader) -> tuple[int | None, int | None]:
    """By which a loader is known again: the samples in a batch as the script made it, and those of its data set."""
    return own_batch(loader), sample_count(loader)


def drawn_count(loader: Loader) -> int | None:
    """Samples that one pass over the loader draws; None if unknown."""
    batches = _batch_sampler(loader)
    if batches is None:
        return None
    sampler = getattr(batches, "sampler", None)
    try:
        return len(loader.sampler if sampler is None else sampler)
    except (TypeError, NotImplementedError):
        return None


def drops_last(loader: Loader) -> bool:
    """Whether the last batch of a pass is left out where it is shorter."""
    return bool(getattr(loader.batch_sampler, "drop_last", loader.drop_last))


def last_batch(loader: Loader, size: int) -> tuple[int, int] | None:
    """The samples of the last batch of each pass if batches have `size` samples, and the batches of a pass. None: it is as large as
    the others, as it is with the loader's own size, or not known."""
    batches, drawn, own = _batch_sampler(loader), drawn_count(loader), own_batch(loader)
    if drawn is None or not own or drawn % own == 0 or getattr(batches, "drop_last", True):
        return None
    whole, rest = divmod(drawn, size)
    return (rest, whole + 1) if whole and rest else None


def _batch_sampler(loader: Loader) -> Any:
    """What draws the samples of each batch; None: the data set does. It may be in the place of a sampler of single samples, for data
    sets that are asked for many at once."""
    if loader.batch_sampler is not None:
        return loader.batch_sampler
    return loader.sampler if hasattr(loader.sampler, "batch_size") else None
