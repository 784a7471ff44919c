"""Keeps a driven script inside its training loop.

A loop that breaks off after so many steps, or runs over `range(20)`, ends before all sizes are measured; what follows
it (evaluation, checkpoints, another start of the process for the rest) is nothing that a search needs. So where the
script is about to leave its loop, it is sent back to the loop's first line, as a debugger's `jump` does. Lines are
traced only from an optimizer step to the next request for a batch; of a loop that accumulates, from each backward pass.
"""

from __future__ import annotations

import inspect
import sys
import threading

from ..watch.script import SourceFile, forget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable, Iterator, NoReturn

    from ..types import Call
    from ..watch.script import Block


#: Times in a row that a loop may be sent back without asking for a batch, or without a step of its optimizer.
IN_VAIN = 2
#: Pythons that keep count of their stack when they jump, and that do also where the loop is in a `try` or a `with`:
#: older ones crash.
JUMPS, GUARDED = sys.version_info >= (3, 10), sys.version_info >= (3, 11)
_ANONYMOUS = ("<listcomp>", "<genexpr>", "<lambda>", "<dictcomp>", "<setcomp>")


class Rewind:
    """`over()` is called when the loop has ended and cannot be begun again. `trained()` tells what the loop trains: a
    loop that comes back with something else would not be the same loop."""

    def __init__(self, trained: Callable[[], Any], over: Callable[[], None]) -> None:
        self._trained = trained
        self._over = over
        #: Lines by frame, when a batch was asked for and at the latest step.
        self._asked: dict[int, int] = {}
        self._stepped: dict[int, int] = {}
        self._asking: int | None = None
        self._sources: dict[str, SourceFile] = {}
        #: The code and the block of the loop that the latest step was seen in.
        self._loop: tuple[CodeType, Block] | None = None
        #: The thread whose lines are traced; None: none.
        self._armed: int | None = None
        #: The frame that is traced, by its identity, and the lines that it is kept in.
        self._frame: int | None = None
        self._block: Block | None = None
        self._raised = False
        self._vain = 0
        self._stepless = 0
        self._kept = None

    def asked(self) -> None:
        """The script asks for a batch: it is in its loop."""
        self.goes_on()
        if self._kept is not None and self._kept != self._trained():
            self._over()
        self._kept = None
        self._asking = threading.get_ident()
        self._asked = {id(frame): frame.f_lineno for frame in _stack()}

    def goes_on(self) -> None:
        """The loop is at work. A thread that fetches batches ahead tells nothing of that."""
        if self._armed in (None, threading.get_ident()):
            self.disarm()
            self._vain = 0

    def stepped(self) -> None:
        """The optimizer has made a step: from here on the loop may end."""
        self._stepless = 0
        if self._kept_out():
            return
        frames = list(_stack())
        before = self._asked if self._asking == threading.get_ident() else self._stepped
        self._stepped = {id(frame): frame.f_lineno for frame in frames}
        for frame in frames:
            line = before.get(id(frame))
            if line is not None and frame.f_code.co_name not in _ANONYMOUS:
                block = self._source(frame).loop(frame.f_lineno, line)
                if block is not None:
                    self._loop = (frame.f_code, block)
                    self._watch(frame, block)
                    return

    def worked(self) -> None:
        """A batch of several for one step: where the loop may end after a step it may end after this one, too."""
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
            # The trace had the frame copy its variables: the step's tensors would outlive it.
            for frame in _stack():
                if id(frame) == self._frame:
                    forget(frame)
            self._armed = None
            self._frame = self._block = None

    # -- the parts

    def _kept_out(self) -> bool:
        """Lines are traced already, and not by us: a debugger, or a coverage tool."""
        return self._armed is None and sys.gettrace() is not None

    def _source(self, frame: FrameType) -> Any:
        filename = frame.f_code.co_filename
        if filename not in self._sources:
            self._sources[filename] = SourceFile(filename)
        return self._sources[filename]

    def _watch(self, frame: FrameType, block: Block) -> None:
        # By its identity: a reference would keep alive what the frame holds.
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
            self.disarm()  # a real error on its way out
        elif frame.f_code.co_name == "<module>":
            self._run_again(frame, block)
        else:
            self._climb(frame.f_back)

    def _run_again(self, frame: FrameType, block: Block) -> NoReturn:
        """The loop was the script's last statement."""
        code = block.code(frame.f_code.co_filename)
        self.disarm()
        while True:
            self._count()
            exec(code, frame.f_globals)

    def _climb(self, frame: FrameType | None) -> None:
        """The loop was its function's last statement: the one that called the function is run again."""
        block = None if frame is None else self._source(frame).statement(frame.f_lineno)
        if frame is None or block is None:
            self._give_up()
        else:
            self._kept = self._trained()
            self._watch(frame, block)

    def _count(self) -> None:
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
