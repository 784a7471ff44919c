"""All objects that the garbage collector knows, also those that a fork or a search has set apart from its collections."""

from __future__ import annotations

import gc
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable


class _SetApart:
    #: How often this process has set apart all that it had.
    times = 0


def set_apart() -> None:
    """From now on collections go through what is made later alone."""
    gc.freeze()
    _SetApart.times += 1


def existing_objects() -> list[Any]:
    """gc.get_objects() leaves out what gc.freeze() has set apart: a script's model may be among that, where it was made before the device was used."""
    if not _SetApart.times and not gc.get_freeze_count():  # which counts them one by one
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        set_apart()


def instances(objects: Iterable[Any], kind: type) -> list[Any]:
    # type(), not isinstance(): a lazy proxy would load its object for isinstance().
    return [item for item in objects if issubclass(type(item), kind)]


class Earlier:
    """The instances of a class by now, for the forks of this process: they go through what they make themselves alone. Going through all takes each a tenth of a
    second, and copies the pages where it lies."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._found = [weakref.ref(item) for item in instances(existing_objects(), kind)]
        set_apart()
        self._times = _SetApart.times

    def and_later(self) -> list[Any] | None:
        """Those, and what was made since; None: that was set apart as well, so that all there is has to be gone through."""
        if self._times != _SetApart.times:
            return None
        earlier = [item for item in (each() for each in self._found) if item is not None]
        # If the script puts what was set apart back, that is both.
        return list({id(item): item for item in [*earlier, *instances(gc.get_objects(), self._kind)]}.values())
