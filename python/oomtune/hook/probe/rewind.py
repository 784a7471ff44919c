"""Keeps a script inside its training loop while it is probed.

A loop that breaks off after so many steps, or runs over `range(20)`, ends before all sizes are measured; what follows
it (evaluation, checkpoints, another start of the process for the rest) is nothing that a search needs. So where the
script is about to leave its loop, it is sent back to the loop's first line, as a debugger's `jump` does. Lines are
traced only from an optimizer step to the next request for a batch; of a loop that accumulates, from each backward pass.
"""

from __future__ import annotations

import inspect
import sys
import threading

from ..watch.script import SourceFile, drop_locals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable, Iterator, NoReturn

    from ..types import Call
    from ..watch.script import Block


#: How often in a row a loop may be sent back without asking for a batch, or without an optimizer step.
IN_VAIN = 2
#: Python versions that can jump back safely, and that can do so from inside a `try` or a `with`: older ones crash.
JUMPS, GUARDED = sys.version_info >= (3, 10), sys.version_info >= (3, 11)
_ANONYMOUS = ("<listcomp>", "<genexpr>", "<lambda>", "<dictcomp>", "<setcomp>")


class Rewind:
    """`over()` is called when the loop has ended and cannot be run again. `trained()` identifies what the loop trains: if
    that changes, it is no longer the same loop."""

    def __init__(self, trained: Callable[[], Any], over: Callable[[], None]) -> None:
        self._trained = trained
        self._over = over
        #: Line of each frame when a batch was last asked for, and at the latest step.
        self._asked: dict[int, int] = {}
        self._stepped: dict[int, int] = {}
        self._requesting_thread: int | None = None
        self._sources: dict[str, SourceFile] = {}
        #: (code, block) of the loop that made the latest step.
        self._loop: tuple[CodeType, Block] | None = None
        #: The thread that is traced; None: none.
        self._armed: int | None = None
        #: The id of the frame that is traced, and the block that it is kept in.
        self._frame: int | None = None
        self._block: Block | None = None
        self._raised = False
        #: The loop has been run again.
        self.sent_back = False
        self._vain = 0
        self._stepless = 0
        self._kept = None

    def batch_requested(self) -> None:
        """The script asks for a batch: it is in its loop."""
        self.loop_continues()
        if self._kept is not None and self._kept != self._trained():
            self._over()
        self._kept = None
        self._requesting_thread = threading.get_ident()
        self._asked = {id(frame): frame.f_lineno for frame in _stack()}

    def loop_continues(self) -> None:
        """The loop has gone on: stops tracing. Ignored in other threads, which may fetch batches ahead."""
        if self._armed in (None, threading.get_ident()):
            self.disarm()
            self._vain = 0

    def optimizer_stepped(self) -> None:
        """An optimizer has stepped: from now on the loop may end."""
        self._stepless = 0
        if self._kept_out():
            return
        frames = list(_stack())
        before = self._asked if self._requesting_thread == threading.get_ident() else self._stepped
        self._stepped = {id(frame): frame.f_lineno for frame in frames}
        for frame in frames:
            line = before.get(id(frame))
            if line is not None and frame.f_code.co_name not in _ANONYMOUS:
                block = self._source(frame).loop(frame.f_lineno, line)
                if block is not None:
                    self._loop = (frame.f_code, block)
                    self._watch(frame, block)
                    return

    def backward_done(self) -> None:
        """A backward pass in a loop that accumulates: the loop may end after it, as after a step."""
        if self._loop is None or self._kept_out():
            return
        code, block = self._loop
        for frame in _stack():
            if frame.f_code is code and block.holds(frame.f_lineno):
                self._watch(frame, block)
                return

    def disarm(self) -> None:
        if self._armed is not None:
            sys.settrace(None)
            # Tracing made the frame copy its variables, which would keep the step's tensors alive.
            for frame in _stack():
                if id(frame) == self._frame:
                    drop_locals(frame)
            self._armed = None
            self._frame = self._block = None

    def _kept_out(self) -> bool:
        """Whether a debugger or a coverage tool traces already."""
        return self._armed is None and sys.gettrace() is not None

    def _source(self, frame: FrameType) -> Any:
        filename = frame.f_code.co_filename
        if filename not in self._sources:
            self._sources[filename] = SourceFile(filename)
        return self._sources[filename]

    def _watch(self, frame: FrameType, block: Block) -> None:
        # By id: a reference would keep the frame's variables alive.
        self._frame, self._block, self._raised = id(frame), block, False
        frame.f_trace = self._trace
        if self._armed is None:
            self._armed = threading.get_ident()
            sys.settrace(_no_trace)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Call | None:
        block = self._block
        if self._armed is None or block is None or id(frame) != self._frame:
            return None
        if event == "exception":
            self._raised = True
            if issubclass(argument[0], SystemExit):
                self._give_up()
        elif event == "line":
            self._raised = False
            if not block.holds(frame.f_lineno) or frame.f_lineno in block.exits:
                self._jump(frame, block)
        elif event == "return" and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            self._returns(frame, block)
        return self._trace

    def _jump(self, frame: FrameType, block: Block) -> None:
        self._count()
        try:
            if (block.guarded and not GUARDED) or not JUMPS:
                raise ValueError("this Python does not jump there safely")
            setattr(frame, "f_lineno", block.entry)
        except ValueError:
            self._give_up()

    def _returns(self, frame: FrameType, block: Block) -> None:
        if self._raised:
            self.disarm()  # an exception leaves the frame
        elif frame.f_code.co_name == "<module>":
            self._run_again(frame, block)
        else:
            self._climb(frame.f_back)

    def _run_again(self, frame: FrameType, block: Block) -> NoReturn:
        """The loop was the script's last statement: runs it again from here."""
        code = block.code(frame.f_code.co_filename)
        self.disarm()
        while True:
            self._count()
            exec(code, frame.f_globals)

    def _climb(self, frame: FrameType | None) -> None:
        """The loop was its function's last statement: runs the calling statement again."""
        block = None if frame is None else self._source(frame).statement(frame.f_lineno)
        if frame is None or block is None:
            self._give_up()
        else:
            self._kept = self._trained()
            self._watch(frame, block)

    def _count(self) -> None:
        self.sent_back = True
        self._vain += 1
        self._stepless += 1
        if self._vain > IN_VAIN or self._stepless > IN_VAIN + 1:
            self._give_up()

    def _give_up(self) -> None:
        self.disarm()
        self._over()


def _no_trace(frame: FrameType, event: str, argument: Any) -> None:
    return None


def _stack() -> Iterator[FrameType]:
    """The frames of this thread outside of the hook, innermost first."""
    here = "oomtune.hook"
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(here):
            yield frame
        frame = frame.f_back
