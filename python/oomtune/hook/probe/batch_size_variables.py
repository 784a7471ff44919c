"""Finds and sets the script's variables that hold its batch size, for loops that make their batches without a DataLoader.

Variables are recognised by name and value, and kept as paths (a module or a running function, then names): references would
keep their objects alive.
"""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ctypes
import inspect
import re
import sys
import types

from ..watch.script import drop_locals, frame_variables, is_user_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterator, Tuple, Union

    #: The name of a module, or the code of a function that runs.
    Root = Union[str, CodeType]
    Path = Tuple[Root, Tuple[Any, ...]]


#: Names of a batch size (`batch_size`, `args.train_batch_size`, `BS`), and prefixes that make them mean something else.
_NAME = re.compile(
    r"^(.*_)?(batch|minibatch|microbatch)(_?(size|sz|len|length|dim|samples))?$|^(.*_)?(bs|bsz|mbs|mb_size)$"
)
_OTHER = re.compile(r"(^|_)(eval|val|valid|validation|test|n|num|number|no|cur|current|max|min|total)_")
_SHORT = ("B", "BS")
#: How deep the attributes of variables are searched: 2 for `self.config.batch_size`.
DEPTH = 2
#: Objects with more fields than this hold no settings.
MOST_FIELDS = 256


def names_a_batch(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    # batchSize, trainBatchSize
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return name in _SHORT or (_NAME.match(plain) is not None and _OTHER.search(plain) is None)


class BatchSizeVariables:
    """The variables that held `rows` when `frame` called the model for the first time."""

    def __init__(self, rows: int, frame: FrameType | None) -> None:
        self._rows = rows
        self._paths: list[Path] = []
        seen: set[int] = set()
        for root, holder in _roots(frame):
            self._look(root, (), holder, DEPTH, seen)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def set(self, rows: int, frame: FrameType | None) -> None:
        """Sets them. `frame`: where the script is now."""
        holders: dict[Any, Any] = {}
        for root, holder in _roots(frame):
            holders.setdefault(root, holder)
        for root, (*path, name) in self._paths:
            holder = holders.get(root)
            for step in path:
                holder = None if holder is None else dict(_items(holder)).get(step)
            if holder is not None:
                _assign(holder, name, rows)

    def restore(self, frame: FrameType | None) -> None:
        self.set(self._rows, frame)

    def _look(self, root: Root, path: tuple[Any, ...], holder: Any, depth: int, seen: set[int]) -> None:
        items = _items(holder)
        if path and len(items) > MOST_FIELDS:
            return
        for name, value in items:
            if type(value) is int:
                if value == self._rows and names_a_batch(name):
                    self._paths.append((root, (*path, name)))
            elif depth and id(value) not in seen and _is_searched(value):
                seen.add(id(value))
                self._look(root, (*path, name), value, depth - 1, seen)


class _Locals:
    """The variables of a running function."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame


def _roots(frame: FrameType | None) -> Iterator[tuple[Root, Any]]:
    """(root, holder of its variables): the script's running functions, innermost first, and its modules."""
    while frame is not None:
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and is_user_code(code.co_filename):
            yield code, _Locals(frame)
        frame = frame.f_back
    for name, module in list(sys.modules.items()):
        if _is_users(name):
            yield name, module.__dict__


def _is_users(module: str | None) -> bool:
    path = getattr(sys.modules.get(module or ""), "__file__", None)
    return module == "__main__" or (isinstance(path, str) and is_user_code(path))


def _is_searched(value: Any) -> bool:
    try:
        return _holds_settings(value)
    except Exception:  # classes of a script's own may raise anything where an attribute is asked for
        return False


def _holds_settings(value: Any) -> bool:
    """Whether to search in it: a dictionary, an object or class of the script's own (but no model), a parser's result, a
    function's defaults, a generator's variables."""
    if isinstance(value, dict):
        return True
    if isinstance(value, types.FunctionType):
        return is_user_code(value.__code__.co_filename)
    if isinstance(value, types.GeneratorType):
        return value.gi_frame is not None and is_user_code(value.gi_frame.f_code.co_filename)
    kind: Any = value if isinstance(value, type) else type(value)
    if kind in (types.SimpleNamespace,) or (kind.__module__, kind.__name__) == ("argparse", "Namespace"):
        return True
    return hasattr(value, "__dict__") and not hasattr(kind, "forward") and _is_users(kind.__module__)


def _items(holder: Any) -> list[tuple[Any, Any]]:
    if isinstance(holder, _Locals):
        return frame_variables(holder.frame)
    if isinstance(holder, types.GeneratorType):
        return [] if holder.gi_frame is None else frame_variables(holder.gi_frame)
    if isinstance(holder, types.FunctionType):
        return [*_defaults(holder).items(), *(holder.__kwdefaults__ or {}).items()]
    return list(holder.items() if isinstance(holder, dict) else vars(holder).items())


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    """As in `def get_batch(split, batch_size=64)`."""
    code, values = function.__code__, function.__defaults__ or ()
    return dict(zip(code.co_varnames[code.co_argcount - len(values) : code.co_argcount], values))


def _assign(holder: Any, name: Any, rows: int) -> None:
    if isinstance(holder, _Locals):
        _set_local(holder.frame, name, rows)
    elif isinstance(holder, types.GeneratorType):
        if holder.gi_frame is not None:
            _set_local(holder.gi_frame, name, rows)
    elif isinstance(holder, types.FunctionType):
        if name in _defaults(holder):
            holder.__defaults__ = tuple({**_defaults(holder), name: rows}.values())
        else:
            holder.__kwdefaults__ = {**(holder.__kwdefaults__ or {}), name: rows}
    elif isinstance(holder, dict):
        holder[name] = rows
    elif isinstance(holder, type):
        setattr(holder, name, rows)
    else:
        object.__setattr__(holder, name, rows)


def _set_local(frame: FrameType, name: str, rows: int) -> None:
    frame.f_locals[name] = rows
    if sys.version_info < (3, 13):
        # Before 3.13 f_locals is a copy, which is written back as debuggers do.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    drop_locals(frame)
