"""The script's own code: its running functions, and the loops and statements of its files."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterator


#: What holds no memory to speak of.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.FunctionType)
_COPIES = sys.version_info < (3, 13)
#: The folder of the hook.
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_user_code(path: str) -> bool:
    parts = ("site-packages", "dist-packages", os.sep + "lib" + os.sep + "python", "<frozen", "<string>")
    return not path.startswith(_HERE) and not any(part in path for part in parts)


def variables(frame: FrameType) -> list[tuple[str, Any]]:
    """(name, value) of a function's variables; the frame keeps none of them."""
    found = list(frame.f_locals.items())
    forget(frame)
    return found


def forget(frame: FrameType) -> None:
    """Takes out of the frame's copy what may hold memory. A script that has called locals() sees the same dictionary:
    its plain values stay."""
    if not _COPIES or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return
    copied = frame.f_locals
    for name in [name for name, value in copied.items() if not isinstance(value, PLAIN)]:
        del copied[name]


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = (ast.Try, ast.With, ast.AsyncWith)


class Block:
    """Lines `first` to `last`; `entry` is the line to go to for running them anew, `guarded` says that they are in a
    `try` or a `with`."""

    def __init__(self, node: Any, last: int, entry: int, guarded: bool) -> None:
        self._node = node
        self._first, self._last = node.lineno, last
        self.entry = entry
        self.guarded = guarded
        #: Lines that do nothing but leave a loop.
        self.exits = frozenset(_exits(node)) if isinstance(node, _LOOPS) else ()

    def holds(self, *lines: int) -> bool:
        return all(self._first <= line <= self._last for line in lines)

    def code(self, filename: str) -> CodeType:
        return compile(ast.Module([self._node], []), filename, "exec")


class SourceFile:
    """The syntax tree of one file; empty where its text cannot be had."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        try:
            self._tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError):
            self._tree = ast.parse("")

    def loop(self, *lines: int) -> Block | None:
        """The innermost loop around the lines, within the function that they are in; None: none."""
        found, guarded = None, False
        for node in self.around(lines[0]):
            if isinstance(node, _SCOPES):
                found, guarded = None, False
            elif isinstance(node, _BLOCKS):
                guarded = True
            elif isinstance(node, _LOOPS):
                # A `while` is entered past its condition, which may have come true.
                entry = node.body[0].lineno if isinstance(node, ast.While) else node.lineno
                block = Block(node, node.body[-1].end_lineno or node.lineno, entry, guarded)
                found = block if block.holds(*lines) else found
        return found

    def statement(self, line: int) -> Block | None:
        """The statement that runs at a line; of a compound one its head."""
        found, guarded = None, False
        for node in self.around(line):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
                block = Block(node, last, node.lineno, guarded)
                found = block if block.holds(line) else found
            guarded = isinstance(node, _BLOCKS) or (guarded and not isinstance(node, _SCOPES))
        return found

    def around(self, line: int) -> Iterator[ast.AST]:
        """Nodes that reach over the line, outermost first."""
        node: Any = self._tree
        while node is not None:
            children: Any = ast.iter_child_nodes(node)
            reach = (child for child in children if hasattr(child, "lineno"))
            node = next((child for child in reach if child.lineno <= line <= child.end_lineno), None)
            if node is not None:
                yield node


def _exits(loop: Any) -> Iterator[int]:
    """Lines of the loop's own `break`s, and of `return`s, that nothing else stands on."""
    pending = [(child, True) for child in loop.body]
    while pending:
        node, own = pending.pop()
        if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break)):
            yield node.lineno
        if isinstance(node, _SCOPES):
            continue
        inner = own and not isinstance(node, _LOOPS)
        for child in ast.iter_child_nodes(node):
            # `if done: break`: whether it leaves cannot be told by its line.
            if isinstance(child, ast.stmt) and child.lineno > node.lineno:
                pending.append((child, inner))
            elif not isinstance(child, (ast.stmt, ast.expr)):
                pending.append((child, inner))


def without_gradients(filename: str, line: int) -> bool:
    """Whether a line stands in a `with` that turns gradients off."""
    for node in SourceFile(filename).around(line):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                said = ast.dump(item.context_expr)
                if "'no_grad'" in said or "'inference_mode'" in said:
                    return True
                if "'set_grad_enabled'" in said and "value=False" in said:
                    return True
    return False
