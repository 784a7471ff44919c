"""The source of functions and classes, of files, notebooks and the interactive interpreter."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import os
import symtable
import sys
import textwrap

from ..errors import OomtuneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator


class Source:
    """`text`: the statement that makes the object; `defined`: the name that it binds."""

    def __init__(self, text: str, defined: str, namespace: dict[str, Any], future: bool) -> None:
        self.text = text
        self.defined = defined
        #: The variables that its names mean.
        self.namespace = namespace
        #: It was compiled with `from __future__ import annotations`.
        self.future_annotations = future
        try:
            self._tree = ast.parse(text)
            table = symtable.symtable(text, defined, "exec")
        except SyntaxError as error:
            raise unknown_source(defined, "outside of the function around it: %s" % error.msg) from error
        #: Names that have to be there before it is run, and those that its functions use when they are called.
        self.at_definition: list[str] = []
        self.later: list[str] = []
        self._collect(table, self.at_definition)

    def _collect(self, table: symtable.SymbolTable, into: list[str]) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_referenced() and (top or symbol.is_global()) and name != self.defined and name not in into:
                into.append(name)
        for child in table.get_children():
            self._collect(child, self.later if child.get_type() == "function" else into)

    def dotted(self) -> Iterator[list[str]]:
        """`["xml", "etree", "ElementTree", "parse"]` of each such expression."""
        for node in ast.walk(self._tree):
            parts: list[str] = []
            inner = node
            while isinstance(inner, ast.Attribute):
                parts.insert(0, inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and parts:
                yield [inner.id, *parts]


def unknown_source(name: str, why: str) -> OomtuneError:
    return OomtuneError(
        "OOMTUNE_USAGE",
        "`%s` cannot be run in a fresh process: its source is not known %s." % (name, why),
        "Define it with `def` or `class` in a cell without %%magic, or in a file that is imported.",
    )


def source_of(thing: Any) -> Source:
    """Of a function, a class, or what a decorator made of one. Raises OomtuneError OOMTUNE_USAGE."""
    if isinstance(thing, type):
        return _of_class(thing)
    function = inspect.unwrap(thing)
    if not inspect.isfunction(function):
        raise unknown_source(thing.__name__, "(it is %s)" % type(function).__name__)
    code = function.__code__
    namespace = {**function.__globals__, **_closure(function)}
    future = bool(code.co_flags & __future__.annotations.compiler_flag)
    if function.__name__ == "<lambda>":
        return Source("_lambda = (%s)\n" % _lambda(code), "_lambda", namespace, future)
    try:
        text = "".join(inspect.getsourcelines(function)[0])
    except (OSError, TypeError) as error:
        raise unknown_source(function.__name__, "(%s)" % error) from error
    return Source(_dedented(text), function.__name__, namespace, future)


def _closure(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            pass
    return found


def _dedented(text: str) -> str:
    text = textwrap.dedent(text)
    if text[:1].isspace():
        # a text inside of it goes further left than its code
        return "if True:\n" + text
    return text


def _lambda(code: Any) -> str:
    """The expression that makes this code."""
    text = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        tree = ast.parse("")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    found = {ast.get_source_segment(text, node) or "" for node in nodes}
    same = [one for one in found if one and _compiled(one) == (code.co_code, code.co_names, code.co_consts)]
    if len(same) != 1:
        raise unknown_source("lambda", "(write it with `def`)")
    return same[0]


def _compiled(expression: str) -> tuple[bytes, tuple[str, ...], tuple[Any, ...]]:
    code = eval("(%s)" % expression, {}).__code__  # makes the function only
    return code.co_code, code.co_names, code.co_consts


# -- classes


def _of_class(kind: type) -> Source:
    functions = [inspect.unwrap(function) for function in _functions(kind)]
    namespace: dict[str, Any] = {}
    future = False
    for function in functions:
        namespace.update(function.__globals__)
        namespace.update(_closure(function))
        future = future or bool(function.__code__.co_flags & __future__.annotations.compiler_flag)
    if not namespace:
        namespace = dict(vars(sys.modules[kind.__module__]))
    text = _class_text(kind, functions)
    if text is None:
        raise unknown_source(kind.__qualname__, "(it is in no file and no cell)")
    return Source(_dedented(text), kind.__name__, namespace, future)


def _functions(kind: type) -> Iterator[Any]:
    for member in vars(kind).values():
        function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
        if inspect.isfunction(inspect.unwrap(function) if callable(function) else function) and _is_own(function, kind):
            yield function


def _is_own(function: Any, kind: type) -> bool:
    """Whether it is neither another class's nor made by a decorator of the class."""
    return (
        function.__qualname__.startswith(kind.__qualname__ + ".")
        and inspect.unwrap(function).__code__.co_filename != "<string>"
    )


def _class_text(kind: type, functions: list[Any]) -> str | None:
    """A notebook's class belongs to no file: it is in the cell of its functions, else in the latest cell that has one."""
    for function in functions:
        code = function.__code__
        found = _class_in(code.co_filename, kind.__name__, code.co_firstlineno)
        if found is not None:
            return found
    own_file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    cells = [filename for filename in reversed(list(linecache.cache)) if not os.path.exists(filename)]
    for filename in [own_file] if own_file else cells:
        found = _class_in(filename, kind.__name__, None)
        if found is not None:
            return found
    return None


def _class_in(filename: str, name: str, line: int | None) -> str | None:
    lines = linecache.getlines(filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    found: str | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if line is None or first <= line <= last:
                found = "".join(lines[first - 1 : last])
    return found
