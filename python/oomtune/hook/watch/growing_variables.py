"""Finds the script's variable that grows with each step: a list, a cache, a hidden state that still holds the graphs of
earlier steps. Compares two snapshots of the running functions' variables, some steps apart."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import collections
import inspect
import linecache
import os
import re
import sys

from .script import PLAIN, frame_variables, is_user_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterator

    from ..types import Tensor, Torch


#: The most objects that a snapshot visits, and how deep below a variable.
MOST_OBJECTS = 5000
DEEPEST = 3
#: Containers with more elements than this are counted, not searched.
MOST_ELEMENTS = 64
#: The most nodes of one autograd graph that are counted.
MOST_NODES = 4000

_PLAIN = (bytearray, *PLAIN)


class Found:
    """A variable, and its count: elements of a container, or nodes of a tensor's graph."""

    def __init__(self, name: str, code: CodeType, value: Any, count: int) -> None:
        self.name = name
        #: The code of the function that the variable belongs to.
        self.code = code
        self.value = value
        self.count = count


class GrowingVariables:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._before = {}

    def snapshot(self) -> None:
        """Notes the counts of all variables as they are now."""
        self._before = {key: found.count for key, found in self._seen(sys._getframe(1)).items()}

    def grown_within(self, steps: int, held: float) -> str | None:
        """Name and line of the variable that has grown in most of the `steps` since the snapshot, by at least `held` bytes; None:
        none has. A log grows with each step as well."""
        return _largest([one for one in self._grown(sys._getframe(1), max(2, steps // 2)) if one[0] >= held])

    def grown_by(self, frame: FrameType, held: float) -> str | None:
        """The same, seen from `frame` where an error was raised: the variable that has grown by at least `held` bytes since the
        snapshot, in whatever number of steps."""
        return _largest([one for one in self._grown(frame, 2) if one[0] >= held])

    def _grown(self, frame: FrameType, least: int) -> list[tuple[int, Found]]:
        """(bytes, variable) of those whose count has grown by at least `least` since the snapshot."""
        grown: list[tuple[int, Found]] = []
        for key, found in self._seen(frame).items():
            more = found.count - self._before.get(key, found.count)
            if more >= least:
                grown.append((self._bytes(found, more), found))
        return grown

    def _seen(self, frame: FrameType) -> dict[Any, Found]:
        scopes = list(_scopes(frame))
        # Other references to a module's dictionary are skipped: its variables are visited by their own names.
        seen: dict[Any, Found] = {}
        visited = {owner for owner, _, _ in scopes}
        for _, code, named in scopes:
            for name, value in named:
                if not name.startswith("__"):
                    self._visit(name, code, value, 0, seen, visited)
        return seen

    def _visit(
        self, name: str, code: CodeType, value: Any, depth: int, seen: dict[Any, Found], visited: set[int]
    ) -> None:
        # (type(), as a lazy proxy would load its object for isinstance())
        if issubclass(type(value), _PLAIN) or id(value) in visited or len(visited) >= MOST_OBJECTS:
            return
        visited.add(id(value))
        key = (code.co_filename, code.co_name, name)
        try:
            if isinstance(value, self._torch.Tensor):
                if value.grad_fn is not None:
                    seen[key] = Found(name, code, value, _nodes(value))
                return
            if _is_container(value):
                seen[key] = Found(name, code, value, len(value))
                inner = _elements(value) if len(value) <= MOST_ELEMENTS else ()
            else:
                inner = [("%s.%s" % (name, part), one) for part, one in list(getattr(value, "__dict__", {}).items())]
        except Exception:  # a script's own containers may raise anything
            return
        if depth < DEEPEST:
            for part, one in inner:
                self._visit(part if part.startswith(name) else name + part, code, one, depth + 1, seen, visited)

    def _bytes(self, found: Found, more: int) -> int:
        """Estimated bytes of the latest `more` elements; a tensor with a graph counts as more than all others."""
        if isinstance(found.value, self._torch.Tensor):
            return found.count * 1024
        values = list(found.value.values() if hasattr(found.value, "values") else found.value)[-more:]
        return sum(self._size(value) for value in values)

    def _size(self, value: Any, depth: int = 0) -> int:
        try:
            if isinstance(value, self._torch.Tensor):
                return value.element_size() * value.nelement() + (1 << 40 if value.grad_fn is not None else 0)
            if isinstance(value, self._torch.nn.Module):
                return sum(self._size(one) for one in value.parameters())
            if isinstance(value, (list, tuple)) and depth < DEEPEST:
                return sum(self._size(one, depth + 1) for one in value[:MOST_ELEMENTS])
            if isinstance(value, dict) and depth < DEEPEST:
                return sum(self._size(one, depth + 1) for one in list(value.values())[:MOST_ELEMENTS])
            parts = getattr(value, "__dict__", None)
            if parts and depth < DEEPEST:
                return sum(self._size(one, depth + 1) for one in list(parts.values())[:MOST_ELEMENTS])
            return int(getattr(value, "nbytes", None) or sys.getsizeof(value))
        except Exception:
            return 0


def _largest(grown: list[tuple[int, Found]]) -> str | None:
    return _described(max(grown, key=lambda one: one[0])[1]) if grown else None


def _is_container(value: Any) -> bool:
    """Whether it is one of Python's own containers, or derived from one: len() of others may compute a whole table."""
    return isinstance(value, (list, dict, set, collections.deque))


def _elements(value: Any) -> list[tuple[str, Any]]:
    if hasattr(value, "items"):
        return [("[%r]" % (key,), one) for key, one in list(value.items()) if isinstance(key, (str, int))]
    return [("[%d]" % index, one) for index, one in enumerate(list(value))]


def _nodes(tensor: Tensor) -> int:
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    return len(seen)


def _scopes(start: FrameType) -> Iterator[tuple[int, CodeType, list[tuple[str, Any]]]]:
    """(id of the variables' owner, code, variables) for each of the script's functions from `start` outwards, and for their
    modules."""
    frame: FrameType | None = start
    modules: set[int] = set()
    while frame is not None:
        code = frame.f_code
        if is_user_code(code.co_filename):
            optimized = code.co_flags & inspect.CO_OPTIMIZED
            if optimized:
                yield id(frame), code, frame_variables(frame)
            if id(frame.f_globals) not in modules:
                modules.add(id(frame.f_globals))
                yield id(frame.f_globals), code, list(frame.f_globals.items())
        frame = frame.f_back


def _described(found: Found) -> str:
    """`losses` (train.py:41: losses.append(loss))."""
    path = found.code.co_filename
    last = re.escape(found.name.split("[")[0].rpartition(".")[2])
    fills = r"\b%s\b(\[.*\])*\s*(\.(append|appendleft|extend|insert|add|update|setdefault)\(|\[.*\]\s*=[^=]|\+=)" % last
    is_leading = r"\b%s\b[\w\s,.)\]]*[-+*/]?=[^=]" % last
    lines = linecache.getlines(path)
    first = found.code.co_firstlineno
    wanted = is_leading if hasattr(found.value, "grad_fn") else fills
    numbers = [n for n, line in enumerate(lines, 1) if re.search(wanted, line)]
    number = next((n for n in numbers if n >= first), numbers[0] if numbers else None)
    if hasattr(found.value, "grad_fn") and numbers:
        number = numbers[-1]
    if number is None:
        return "`%s` in %s" % (found.name, os.path.basename(path))
    return "`%s` (%s:%d: %s)" % (found.name, os.path.basename(path), number, lines[number - 1].strip()[:120])
