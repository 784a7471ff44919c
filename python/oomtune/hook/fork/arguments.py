"""The script's arguments, watched until they are read: what has run by then is the same whatever they are."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Sequence

    Words = List[str]
else:
    Words = list

#: What tells no more of a list than its length and, as indexing of the first does, the program's own name.
HARMLESS = frozenset(
    ["__class__", "__getattribute__", "__init__", "__len__", "__new__", "__sizeof__", "__subclasshook__"]
)
#: Concatenation takes a list's items past its methods, but asks a subclass on its right first.
REVERSED = "__radd__"


class Arguments(Words):
    """In the place of sys.argv. `read()` is called once, before whatever tells the script an argument or changes one."""

    def __init__(self, words: Sequence[str], read: Callable[[], None]) -> None:
        super().__init__(words)
        self._read: Callable[[], None] | None = read

    @classmethod
    def watch(cls, read: Callable[[], None]) -> Arguments:
        watched = cls(getattr(sys, "argv", [""]), read)
        sys.argv = watched
        return watched

    @property
    def words(self) -> list[str]:
        """All but the program's name."""
        return super().__getitem__(slice(1, None))

    @words.setter
    def words(self, words: Sequence[str]) -> None:
        known: list[str] = getattr(sys, "orig_argv", [])
        count = len(self.words)
        if count and known[-count:] == self.words:
            known[-count:] = words
        list.__setitem__(self, slice(1, None), list(words))

    def rest(self) -> None:
        """From now on it is a list like any other."""
        self._read = None

    def _touched(self, name: str, args: tuple[Any, ...]) -> None:
        if self._read is None or (name in ("__getitem__", "__setitem__") and args[0] == 0):
            return
        read, self._read = self._read, None
        read()

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[list[str]]]:
        """Another process (multiprocessing's, which gets sys.argv) and a copy find a plain list."""
        self._touched("__reduce_ex__", ())
        return list, ([*self],)


def _watched(name: str) -> Callable[..., Any]:
    original = getattr(list, name, None)

    def method(self: Arguments, *args: Any, **kwargs: Any) -> Any:
        self._touched(name, args)
        if original is None:
            return [*args[0], *self] if isinstance(args[0], list) else NotImplemented
        return original(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in sorted({*vars(list), REVERSED} - HARMLESS - {"__doc__", "__hash__", "__class_getitem__"}):
    setattr(Arguments, _name, _watched(_name))
