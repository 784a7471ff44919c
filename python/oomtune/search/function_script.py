"""A script that calls a function as it would be called here: with the functions, classes and values that it uses."""

from __future__ import annotations

import builtins
import inspect
import io
import os
import pickle
import sys
import types

from ..errors import OomtuneError
from .loader_sizes import sizes_loaders_only
from .sources import Source, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

#: Values of these types are written into the script, where a search may set a batch size among them.
LITERALS = (int, bool, str, bytes, type(None))
#: The longest text that is.
LONGEST = 200
#: What a parameter without a value is given by its name: the placeholder that the program fills in.
KNOBS = {"accumulation": "{accumulation}", "gradient_accumulation_steps": "{accumulation}"}
#: What a function gets as its size where sizes are set in its own loop.
OWN_SIZE = 8


class FunctionScript:
    """`arguments`: what the function is called with, by position and by name. Raises OomtuneError OOMTUNE_USAGE."""

    def __init__(self, function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]) -> None:
        self._imports: list[str] = []
        self._literals: dict[str, Any] = {}
        self._early: dict[str, Any] = {}
        self._late: dict[str, Any] = {}
        #: By id of the function or class.
        self._sources: dict[int, Source] = {}
        self._aliases: dict[str, str] = {}
        #: Values of every name, so that one name means one thing.
        self._meant: dict[str, Any] = {}
        #: In the order in which they have to be run.
        self._ordered: list[Source] = []
        self._call = self._callable(function)
        given = [*args]
        self._add_value("_arguments", (given, kwargs), "the arguments")
        placeholders = _placeholders(function, len(given), kwargs)
        only_loaders = len(placeholders) == 1 and sizes_loaders_only(function, placeholders[0][0])
        #: How sizes come to the function: in its own loop, there though it has a parameter for its loader's, or as an argument.
        self.takes_sizes = "loop" if not placeholders else "loader" if only_loaders else "argument"
        #: Words of the command line that go to the function as whole numbers, in this order.
        self.words = [] if only_loaders else [placeholder for _, placeholder in placeholders]
        #: The function's arguments by name, as the script writes them.
        self._numbers = ", ".join(
            "%r: %s" % (parameter, OWN_SIZE if only_loaders else "int(_sys.argv[%d])" % place)
            for place, (parameter, _) in enumerate(placeholders, start=1)
        )

    def write(self, folder: str, name: str) -> str:
        """Writes the script and the values that it loads; returns the script's path."""
        early, late = os.path.join(folder, "early.pickle"), os.path.join(folder, "values.pickle")
        self._dump(early, self._early)
        self._dump(late, self._late)
        future = any(source.future_annotations for source in self._ordered)
        lines = [
            "# Written by oomtune.find_batch().",
            *(["from __future__ import annotations"] if future else []),
            "import pickle as _pickle, sys as _sys",
            "_sys.path.extend(path for path in %r if path not in _sys.path)" % [os.getcwd(), *sys.path],
            *self._imports,
            *("%s = %r" % pair for pair in self._literals.items()),
            *(["globals().update(_pickle.load(open(%r, 'rb')))" % early] if self._early else []),
            *(source.text.rstrip("\n") for source in self._ordered),
            *("%s = %s" % pair for pair in self._aliases.items()),
            "globals().update(_pickle.load(open(%r, 'rb')))" % late,
            "if __name__ == '__main__':",
            "    %s(*_arguments[0], **{%s}, **_arguments[1])" % (self._call, self._numbers),
        ]
        path = os.path.join(folder, name + ".py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return path

    # -- what it is made of

    def _callable(self, function: Any) -> str:
        if isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
            self._add("_function", function)
        else:
            # A method, a partial, or an object that can be called.
            self._add_value("_function", function, "the function")
        return "_function"

    def _add(self, name: str, value: Any) -> None:
        """Has the script bind the name to the value."""
        if name in self._meant:
            if self._meant[name] is not value:
                raise OomtuneError(
                    "OOMTUNE_USAGE",
                    "`%s` means two things in the functions that are to be run in a fresh process." % name,
                    "Give one of them another name.",
                )
            return
        self._meant[name] = value
        if isinstance(value, types.ModuleType):
            self._import("import %s as %s" % (value.__name__, name))
        elif _is_definition(value):
            if _is_importable(value):
                self._import("from %s import %s as %s" % (value.__module__, value.__qualname__, name))
            else:
                defined = self._define(value)
                if defined != name:
                    self._aliases[name] = defined
        elif type(value) in LITERALS and len(repr(value)) < LONGEST:
            self._literals[name] = value
        else:
            self._add_value(name, value, "`%s`" % name)

    def _import(self, line: str) -> None:
        if line not in self._imports:
            self._imports.append(line)

    def _define(self, thing: Any) -> str:
        """Adds the source of a function or class, after what it needs; returns its name."""
        known = self._sources.get(id(thing))
        if known is not None:
            return known.defined
        source = self._sources[id(thing)] = source_of(thing)
        self._meant.setdefault(source.defined, thing)
        if self._meant[source.defined] is not thing:
            self._add(source.defined, thing)  # raises
        for name in source.at_definition:
            self._use(name, source)
            if name in self._late:
                self._early[name] = self._late.pop(name)
        self._ordered.append(source)
        for name in source.later:
            self._use(name, source)
        for parts in source.dotted():
            self._import_parts(source, parts)
        return source.defined

    def _use(self, name: str, source: Source) -> None:
        if name.startswith("__") or name not in source.namespace:
            return
        value = source.namespace[name]
        # IPython's `open` is a function around the real one
        meant = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        if getattr(builtins, name, None) is not meant:
            self._add(name, value)

    def _import_parts(self, source: Source, parts: list[str]) -> None:
        """`import xml` alone has no `xml.etree`."""
        module = source.namespace.get(parts[0])
        if isinstance(module, types.ModuleType):
            dotted = module.__name__
            for part in parts[1:]:
                dotted += "." + part
                if dotted not in sys.modules or getattr(module, part, None) is not sys.modules[dotted]:
                    break
                module = sys.modules[dotted]
                self._import("import %s as _module" % dotted)

    # -- values

    def _add_value(self, name: str, value: Any, shown: str) -> None:
        """Tries whether it can be handed over, and adds the functions and classes that it needs."""
        self._late[name] = value
        needed: list[Any] = []
        try:
            _Pickler(io.BytesIO(), needed).dump(value)
        except Exception as error:  # whatever a class of the user's raises
            raise OomtuneError(
                "OOMTUNE_USAGE",
                "%s cannot be handed to a fresh process (%s: %s)." % (shown, type(error).__name__, error),
                "Make it inside of the function, or hand over what it is made of.",
            ) from error
        for thing in needed:
            self._define(thing)

    def _dump(self, path: str, values: dict[str, Any]) -> None:
        # All at once: a model and the optimizer of its weights stay together.
        with open(path, "wb") as file:
            _Pickler(file, []).dump(values)


class _Pickler(pickle.Pickler):
    """Notes the functions and classes of the notebook, or script, that values refer to."""

    def __init__(self, file: Any, needed: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._needed = needed

    def reducer_override(self, obj: Any) -> Any:
        if _is_definition(obj) and getattr(obj, "__module__", None) == "__main__":
            self._needed.append(obj)
        return NotImplemented


def _is_definition(value: Any) -> bool:
    if isinstance(value, (type, types.FunctionType)):
        return True
    return hasattr(value, "__wrapped__") and isinstance(inspect.unwrap(value), types.FunctionType)


def _is_importable(thing: Any) -> bool:
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or module.__name__ in ("__main__", "__mp_main__"):
        return False
    return getattr(module, getattr(thing, "__qualname__", ""), None) is thing


def _placeholders(function: Any, given: int, kwargs: dict[str, Any]) -> list[tuple[str, str]]:
    """(parameter, placeholder) of each parameter that was given no value and has none: the first is the micro-batch."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    left = [
        parameter.name
        for parameter in parameters[given:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in kwargs
    ]
    sizes = [name for name in left if name not in KNOBS]
    if len(sizes) > 1 or (left and not sizes):
        raise OomtuneError(
            "OOMTUNE_USAGE",
            "The function needs values for %s, and a search has one: the micro-batch." % ", ".join(left),
            "Hand over the others: find_batch(train, args=(...), kwargs={...}).",
        )
    return [(name, KNOBS.get(name, "{micro_batch}")) for name in left]
