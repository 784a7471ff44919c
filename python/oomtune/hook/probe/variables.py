"""The script's own variables that hold its batch size: where a loop makes its batches by hand, the next one is made by them.

They are known by their name and by what they hold, and kept as ways to them (a module or a running function, then names): a
reference would keep alive what a variable stands for.
"""

# What is looked into is the script's own, and may be anything.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ctypes
import inspect
import re
import sys
import types

from ..watch.script import forget, is_user_code, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterator, Tuple, Union

    #: The name of a module, or the code of a function that runs.
    Root = Union[str, CodeType]
    Way = Tuple[Root, Tuple[Any, ...]]


#: Names that say "samples in a batch" (`batch_size`, `args.train_batch_size`, `BS`), and parts of those that say something else.
_NAME = re.compile(
    r"^(.*_)?(batch|minibatch|microbatch)(_?(size|sz|len|length|dim|samples))?$|^(.*_)?(bs|bsz|mbs|mb_size)$"
)
_OTHER = re.compile(r"(^|_)(eval|val|valid|validation|test|n|num|number|no|cur|current|max|min|total)_")
_SHORT = ("B", "BS")
#: How deep the objects that variables stand for are looked into: `self.config.batch_size`.
DEPTH = 2
#: What has more fields than this holds no settings.
MOST_FIELDS = 256


def names_a_batch(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    # batchSize, trainBatchSize
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return name in _SHORT or (_NAME.match(plain) is not None and _OTHER.search(plain) is None)


class Variables:
    """Those that held `rows` when the model was called from `frame` for the first time."""

    def __init__(self, rows: int, frame: FrameType | None) -> None:
        self._rows = rows
        self._ways: list[Way] = []
        seen: set[int] = set()
        for root, holder in _roots(frame):
            self._look(root, (), holder, DEPTH, seen)

    def __bool__(self) -> bool:
        return bool(self._ways)

    def set(self, rows: int, frame: FrameType | None) -> None:
        """From here on; `frame`: where the script is now."""
        holders: dict[Any, Any] = {}
        for root, holder in _roots(frame):
            holders.setdefault(root, holder)
        for root, (*way, name) in self._ways:
            holder = holders.get(root)
            for step in way:
                holder = None if holder is None else dict(_items(holder)).get(step)
            if holder is not None:
                _assign(holder, name, rows)

    def restore(self, frame: FrameType | None) -> None:
        self.set(self._rows, frame)

    def _look(self, root: Root, way: tuple[Any, ...], holder: Any, depth: int, seen: set[int]) -> None:
        items = _items(holder)
        if way and len(items) > MOST_FIELDS:
            return
        for name, value in items:
            if type(value) is int:
                if value == self._rows and names_a_batch(name):
                    self._ways.append((root, (*way, name)))
            elif _holds_settings(value) and depth and id(value) not in seen:
                seen.add(id(value))
                self._look(root, (*way, name), value, depth - 1, seen)


class _Locals:
    """Of a running function, or of a generator that waits."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame


def _roots(frame: FrameType | None) -> Iterator[tuple[Root, Any]]:
    """Where variables are: the running functions of the script, innermost first, and its modules."""
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


def _holds_settings(value: Any) -> bool:
    """A dictionary, an object or a class of the script's own making, what a parser gives, or what has defaults and variables of
    its own: a function, a generator. No model."""
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
        return variables(holder.frame)
    if isinstance(holder, types.GeneratorType):
        return [] if holder.gi_frame is None else variables(holder.gi_frame)
    if isinstance(holder, types.FunctionType):
        return [*_defaults(holder).items(), *(holder.__kwdefaults__ or {}).items()]
    return list(holder.items() if isinstance(holder, dict) else vars(holder).items())


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    """`def get_batch(split, batch_size=64)`"""
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
        # Until then this is a copy of the variables, which is written back as debuggers do it.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    forget(frame)
