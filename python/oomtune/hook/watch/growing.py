"""Which variable of the script keeps what each step leaves behind: a list that grows, a cache, a hidden state that still
holds the graphs of earlier steps. Looked for from the running functions' variables, twice, some steps apart."""

# What is looked into is the script's own, and may be anything.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import collections
import inspect
import linecache
import os
import re
import sys

from .script import PLAIN, is_user_code, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterator

    from ..types import Tensor, Torch


#: Objects that are looked at, and how deep below a variable.
MOST_OBJECTS = 5000
DEEPEST = 3
#: Containers with more elements than these are counted, not searched.
MOST_ELEMENTS = 64
#: Nodes of one autograd graph that are counted.
MOST_NODES = 4000

_PLAIN = (bytearray, *PLAIN)


class Found:
    """A variable, and how much it held: elements of a container, nodes of a tensor's graph."""

    def __init__(self, name: str, code: CodeType, value: Any, count: int) -> None:
        self.name = name
        #: Of the function that the variable belongs to.
        self.code = code
        self.value = value
        self.count = count


class GrowingVariables:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._before = {}

    def look(self) -> None:
        """What the variables hold now, by name and owner."""
        self._before = {key: found.count for key, found in self._seen(sys._getframe(1)).items()}

    def named(self, steps: int) -> str | None:
        """The variable that has grown with most of `steps`, as a person would look for it; None: none was seen."""
        return _largest(self._grown(sys._getframe(1), max(2, steps // 2)))

    def named_at(self, frame: FrameType, held: float) -> str | None:
        """The same where an error came from, whose `frame` is no more running: the variable that has grown since by `held`
        bytes at least, however often."""
        return _largest([one for one in self._grown(frame, 2) if one[0] >= held])

    # -- the parts

    def _grown(self, frame: FrameType, least: int) -> list[tuple[int, Found]]:
        """(bytes, variable) of those that hold `least` elements more than when they were looked at."""
        grown: list[tuple[int, Found]] = []
        for key, found in self._seen(frame).items():
            more = found.count - self._before.get(key, found.count)
            if more >= least:
                grown.append((self._bytes(found, more), found))
        return grown

    def _seen(self, frame: FrameType) -> dict[Any, Found]:
        scopes = list(_scopes(frame))
        # A module's variables are looked at as such, whoever else has hold of its dictionary.
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
        if isinstance(value, _PLAIN) or id(value) in visited or len(visited) >= MOST_OBJECTS:
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
        except Exception:  # a script's own containers may do anything when they are asked
            return
        if depth < DEEPEST:
            for part, one in inner:
                self._visit(part if part.startswith(name) else name + part, code, one, depth + 1, seen, visited)

    def _bytes(self, found: Found, more: int) -> int:
        """What the latest elements hold, as far as can be told: a tensor with its graph holds more than can be counted."""
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
            return int(getattr(value, "nbytes", None) or sys.getsizeof(value))
        except Exception:
            return 0


def _largest(grown: list[tuple[int, Found]]) -> str | None:
    return _described(max(grown, key=lambda one: one[0])[1]) if grown else None


def _is_container(value: Any) -> bool:
    """Python's own, and what is derived from them: to ask others for their length may compute a whole table."""
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
    """(identity of the variables' dictionary, code, variables) of the script's functions that `start` runs in, and of the
    modules that they are from."""
    frame: FrameType | None = start
    modules: set[int] = set()
    while frame is not None:
        code = frame.f_code
        if is_user_code(code.co_filename):
            optimized = code.co_flags & inspect.CO_OPTIMIZED
            if optimized:
                yield id(frame), code, variables(frame)
            if id(frame.f_globals) not in modules:
                modules.add(id(frame.f_globals))
                yield id(frame.f_globals), code, list(frame.f_globals.items())
        frame = frame.f_back


def _described(found: Found) -> str:
    """`losses` (train.py:41: losses.append(loss))."""
    path = found.code.co_filename
    last = re.escape(found.name.split("[")[0].rpartition(".")[2])
    fills = r"\b%s\b(\[.*\])*\s*(\.(append|appendleft|extend|insert|add|update|setdefault)\(|\[.*\]\s*=[^=]|\+=)" % last
    sets = r"\b%s\b[\w\s,.)\]]*[-+*/]?=[^=]" % last
    lines = linecache.getlines(path)
    first = found.code.co_firstlineno
    wanted = sets if hasattr(found.value, "grad_fn") else fills
    numbers = [n for n, line in enumerate(lines, 1) if re.search(wanted, line)]
    number = next((n for n in numbers if n >= first), numbers[0] if numbers else None)
    if hasattr(found.value, "grad_fn") and numbers:
        number = numbers[-1]
    if number is None:
        return "`%s` in %s" % (found.name, os.path.basename(path))
    return "`%s` (%s:%d: %s)" % (found.name, os.path.basename(path), number, lines[number - 1].strip()[:120])
