"""The script's own code: its running functions, and the loops and statements of its files."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Iterable, Iterator


#: Types that hold little memory.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.FunctionType)
_COPIES = sys.version_info < (3, 13)
#: The folder of the hook.
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_user_code(path: str) -> bool:
    parts = ("site-packages", "dist-packages", os.sep + "lib" + os.sep + "python", "<frozen", "<string>")
    return not path.startswith(_HERE) and not any(part in path for part in parts)


def running_places(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """(file, line) of the script's own running functions, innermost first."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def frame_variables(frame: FrameType) -> list[tuple[str, Any]]:
    """(name, value) of a function's variables; leaves no copies in the frame."""
    found = list(frame.f_locals.items())
    drop_locals(frame)
    return found


def drop_locals(frame: FrameType) -> None:
    """Removes from the frame's copy of its variables what may hold memory. Plain values stay: a script that has called
    locals() sees the same dictionary."""
    if not _COPIES or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return
    copied = frame.f_locals
    for name in [name for name, value in copied.items() if not isinstance(value, PLAIN)]:
        del copied[name]


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = (ast.Try, ast.With, ast.AsyncWith)
#: Methods that make a backward pass for an optimizer's step.
_BACKWARD = {"backward", "manual_backward"}


class Block:
    """The lines from the node's first to `last`. `entry`: the line to jump to in order to run them again; `guarded`: they are
    in a `try` or a `with`."""

    def __init__(self, node: Any, last: int, entry: int, guarded: bool) -> None:
        self._node = node
        self._first, self._last = node.lineno, last
        self.entry = entry
        self.guarded = guarded
        #: Lines that only leave the loop.
        self.exits = frozenset(_exits(node)) if isinstance(node, _LOOPS) else ()

    def holds(self, *lines: int) -> bool:
        return all(self._first <= line <= self._last for line in lines)

    def code(self, filename: str) -> CodeType:
        return compile(ast.Module([self._node], []), filename, "exec")


class SourceFile:
    """The syntax tree of one file; empty if its text cannot be read."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        try:
            self._tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError):
            self._tree = ast.parse("")

    @functools.cached_property
    def trainers(self) -> set[str]:
        """Names of its functions that make a backward pass."""
        functions = (node for node in ast.walk(self._tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
        return {each.name for each in functions if not _BACKWARD.isdisjoint(_called(each, 0, True))}

    def loop(self, *lines: int) -> Block | None:
        """The innermost loop around all the lines, within their function; None: none."""
        found, guarded = None, False
        for node in self.around(lines[0]):
            if isinstance(node, _SCOPES):
                found, guarded = None, False
            elif isinstance(node, _BLOCKS):
                guarded = True
            elif isinstance(node, _LOOPS):
                # Jump past the condition of a `while`, which may be false by now.
                entry = node.body[0].lineno if isinstance(node, ast.While) else node.lineno
                block = Block(node, node.body[-1].end_lineno or node.lineno, entry, guarded)
                found = block if block.holds(*lines) else found
        return found

    def statement(self, line: int) -> Block | None:
        """The statement at a line; of a compound statement only its head."""
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
        """Nodes that contain the line, outermost first."""
        node: Any = self._tree
        while node is not None:
            children: Any = ast.iter_child_nodes(node)
            reach = (child for child in children if hasattr(child, "lineno"))
            node = next((child for child in reach if child.lineno <= line <= child.end_lineno), None)
            if node is not None:
                yield node


def _exits(loop: Any) -> Iterator[int]:
    """Lines that hold only a `break` of this loop, or a `return`."""
    pending = [(child, True) for child in loop.body]
    while pending:
        node, own = pending.pop()
        if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break)):
            yield node.lineno
        if isinstance(node, _SCOPES):
            continue
        inner = own and not isinstance(node, _LOOPS)
        for child in ast.iter_child_nodes(node):
            # `if done: break`: its line does not tell whether it leaves.
            if isinstance(child, ast.stmt) and child.lineno > node.lineno:
                pending.append((child, inner))
            elif not isinstance(child, (ast.stmt, ast.expr)):
                pending.append((child, inner))


def before_step(places: Iterable[tuple[str, int]]) -> bool | None:
    """Whether the script goes on to a backward pass from where it is, by the (file, line) of its running functions, innermost first:
    by the first that tells, as what a function computes in no loop of its own is for its caller. None: none does."""
    inner = True
    for filename, line in places:
        said = before_backward(filename, line, inner)
        if said is not None:
            return said
        inner = False
    return None


@functools.lru_cache(maxsize=1024)
def before_backward(filename: str, line: int, nested: bool = True) -> bool | None:
    """Whether the innermost loop around a line, or its function where there is none, goes on to a backward pass, its own or one that a
    function of the same file makes. A loop that makes gradients of its own there (an attack on the pictures, by autograd.grad()) is a
    part of what is around it. None: nothing in its function tells. `nested`: a backward pass in a loop inside counts."""
    source = SourceFile(filename)
    turns: list[ast.AST] = []
    for node in source.around(line):
        if isinstance(node, _SCOPES):
            turns = [node]
        elif isinstance(node, _LOOPS):
            turns.append(node)
    for turn in reversed(turns):
        if not _BACKWARD.isdisjoint(_called(turn, line, nested)):
            return True
        if not source.trainers.isdisjoint(_called(turn, line + 1, nested)):
            return True
        if "grad" not in _called(turn, line, True):
            # (a function that sets a mode by itself evaluates)
            return None if isinstance(turn, _SCOPES) and "eval" not in _called(turn, 0, True) else False
        nested = False
    return None


def _called(turn: ast.AST, line: int, nested: bool) -> set[str]:
    """Names of what is called from the line on. `nested`: in loops and functions inside, too."""
    names: set[str] = set()
    pending = list(ast.iter_child_nodes(turn))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and node.lineno >= line:
            names.add(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))
        if nested or not isinstance(node, _LOOPS + _SCOPES):
            pending.extend(ast.iter_child_nodes(node))
    return names


def gradients_within(filename: str, line: int) -> bool | None:
    """Whether the innermost `with` around a line that speaks of gradients turns them on; None: there is none."""
    found = None
    for node in SourceFile(filename).around(line):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                said = ast.dump(item.context_expr)
                if "'no_grad'" in said or "'inference_mode'" in said:
                    found = False
                elif "'enable_grad'" in said:
                    found = True
                elif "'set_grad_enabled'" in said and ("value=False" in said or "value=True" in said):
                    found = "value=True" in said
    return found
