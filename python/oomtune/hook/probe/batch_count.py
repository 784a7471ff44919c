"""Counts the batches that a training loop draws from its loaders."""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class BatchCount:
    """Only of the loader that is taken: a validation may share its data set, and others may be gone over together with it. A
    script may make another loader for each epoch, so that one is followed by that of the next backward pass."""

    def __init__(self) -> None:
        #: By the identity of their sampler.
        self._all: dict[int, Drawn] = {}
        self._taken: Drawn | None = None
        self._latest: Drawn | None = None
        #: Batches of the loaders that were taken before.
        self._earlier = 0

    @property
    def total(self) -> int:
        return self._earlier + (0 if self._taken is None else self._taken.count)

    @property
    def is_over(self) -> bool:
        """Whether the loop over the loader that is taken has ended."""
        return self._taken is not None and self._taken.is_over

    @property
    def has_taken(self) -> bool:
        return self._taken is not None

    def take(self, sampler: Any) -> None:
        self._taken = self._of(sampler)

    def has_drawn(self, sampler: Any) -> bool:
        return self._of(sampler).count > 0

    def drew(self, iterator: Any) -> None:
        drawn = self._latest = self._of(iterator._index_sampler)
        if drawn is not self._taken and drawn.iterator() is not iterator:
            drawn.count = 0  # the loop before did not train
        drawn.count += 1
        drawn.begun = True
        drawn.iterator = weakref.ref(iterator)

    def ended(self, iterator: Any) -> None:
        """The iterator has no more batches."""
        self._of(iterator._index_sampler).iterator = nothing

    def backward(self) -> None:
        """The loop that drew the latest batch trains."""
        taken, latest = self._taken, self._latest
        if taken is None or latest is None or latest is taken or not taken.is_over:
            return
        self._earlier += taken.count
        taken.count = 0
        self._taken = latest

    def _of(self, sampler: Any) -> Drawn:
        drawn = self._all.get(id(sampler))
        if drawn is None or drawn.sampler() is not sampler:
            drawn = self._all[id(sampler)] = Drawn(sampler)
        return drawn


class Drawn:
    """What was drawn by one sampler."""

    def __init__(self, sampler: Any) -> None:
        try:
            self.sampler: Callable[[], Any] = weakref.ref(sampler)
        except TypeError:  # a list
            self.sampler = lambda: sampler
        self.count = 0
        self.begun = False
        #: Refers to the iterator of its latest batch.
        self.iterator: Callable[[], Any] = nothing

    @property
    def is_over(self) -> bool:
        return self.begun and self.iterator() is None


def nothing() -> None:
    return None
