"""Sets sizes where the model is called, in a loop that makes its batches without a DataLoader.

Where a variable of the script's holds the batch size it is set, and the script makes its next batches by it. Until they
come, or where there is none such, what the model is called with is cut, or repeated, along its samples' dimension, and
labels where they meet the model's outputs.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import sys

from ..watch.script import is_user_code
from .meeting import Meeting
from .resized import Resized
from .variables import Variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, ContextManager, Optional, Tuple

    from ..instruments import Instruments
    from ..types import Module
    from .driver import Driver

    Made = Optional[Tuple[Any, Any, ContextManager[None]]]


#: Rounds of the loop that batches of the size before may come in: loops fetch some ahead.
AHEAD = 4
FEW_ROWS = "The script's own data makes batches of at most %d: larger ones were made by repeating samples."
_LOADS = re.compile(r"Loader\b|Trainer\b|\.fit\(")


@functools.lru_cache(maxsize=1)
def speaks_of_loaders() -> bool:
    """Whether a loader may yet be asked, as far as the words of the script's own files tell."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        users = name == "__main__" or is_user_code(path)
        if users and _LOADS.search("".join(linecache.getlines(path))):
            return True
    return False


class AtCall:
    def __init__(self, instruments: Instruments, driver: Driver) -> None:
        self._instruments = instruments
        self._driver = driver
        self._calls = instruments.cut.calls
        #: This is where the loop is driven.
        self.on = False
        #: Samples that the script puts into a call by itself; None: none was seen.
        self.rows: int | None = None
        #: All that is put into it has a row for each of them.
        self.suitable = True
        self._resized = Resized(instruments.torch)
        self._meeting = Meeting(instruments.torch, self._resized)
        self._variables: Variables | None = None
        #: Whether batches follow the variables; None: not known yet.
        self._follow: bool | None = None
        #: Rows of the next batch, where they differ from those of the one before; None: they do not.
        self._next: int | None = None
        #: Rows of the batches that were made before the size was set, and rounds since.
        self._before = 0
        self._rounds = 0
        #: The script has made a batch of the size that is asked for.
        self._reached = False
        #: The call that sets the pace: each pass over it is a batch.
        self._site: Any = None
        #: Backward passes when it was last made, and whether it may be made again without one.
        self._backwards = 0
        self._repeats = False
        #: Optimizer steps of this round, and of each.
        self._steps = 0
        self._steps_each: int | None = None
        self._stale = False

    def watch(self) -> None:
        self._calls.before = self._called

    def rest(self) -> None:
        self._calls.before = None

    def release(self) -> None:
        self.on = False
        self.rest()
        self._meeting.close()
        if self._variables:
            self._variables.restore(sys._getframe())

    # -- what the driver tells

    def begin(self) -> None:
        self.on = True
        self.watch()
        self._before = self.rows or 1

    def sized(self, before: int | None, size: int) -> None:
        """From here on batches are to have `size` rows; before it they had `before`."""
        # What follows the step may still be about the batch before.
        self._next = size
        if self._variables and self._follow is not False:
            if before is not None and size != before:
                self._before, self._rounds, self._reached = before, 0, False
            self._variables.set(size, sys._getframe())

    def stepped(self) -> bool:
        """An optimizer has stepped; whether that was the last step of the loop's round."""
        self._steps += 1
        return self._steps == self._steps_each

    def rounded(self) -> bool:
        """A round is over; whether it was one with a batch of another size."""
        if self._steps:
            self._steps_each = self._steps
        stale, self._stale, self._steps = self._stale, False, 0
        self._rounds += 1
        return stale

    # -- calls of modules

    def _called(self, module: Module, args: Any, kwargs: Any) -> Made:
        instruments = self._instruments
        if not instruments.active or instruments.backward.running:
            return None
        if not module.training or not self._calls.begins(module):
            return self._untrained(module, args, kwargs)
        tree = (args, kwargs)
        if self.rows is None:
            self._look(tree)
        if self.rows is None or not (self.on or self._driver.begins_at_call()):
            return None
        rows = self._resized.rows_of(tree)
        if rows is None:
            return None
        site = self._place(module)
        if self._site in (None, site):
            self._site = site
            self._batch(rows)
            if not self.on:
                return None  # the script goes on as it stands
        return self._made(tree, rows)

    def _untrained(self, module: Module, args: Any, kwargs: Any) -> Made:
        """Of a teacher, or another model whose weights stay: it sees the same batch."""
        if not self.on or not self._resized.differs or self._calls.stepped(module):
            return None
        tree = (args, kwargs)
        if next(module.parameters(), None) is None or self._resized.rows_of(tree) != self._resized.own:
            return None
        if self._next is not None:
            self._resized.begin(self._resized.own, self._next)
            self._next = None
        return self._made(tree, self._resized.own)

    def _made(self, tree: Any, rows: int) -> Made:
        own, wanted = self._resized.own, self._resized.wanted
        if own == wanted:
            return (*self._resized.inputs(tree), contextlib.nullcontext())
        views = 1
        if rows not in (own, wanted):
            # Some views of each sample in one call.
            part = own if own > 1 and rows % own == 0 else wanted
            views = rows // part if rows % part == 0 else 1
        self._meeting.open()
        return (*self._resized.inputs(tree, views), self._meeting.apart())

    def _batch(self, rows: int) -> None:
        """The call that sets the pace."""
        done = self._driver.backwards
        begins = self._driver.begins_round
        if begins or done > self._backwards:
            self._driver.called()
        elif not self._repeats:
            self._driver.check_swallowed()
            self._repeats = True
        self._backwards = self._driver.backwards
        if self.on:
            self._next = None
            wanted = rows if self._is_stale(rows) else self._driver.trial.size
            if begins or (rows, wanted) != (self._resized.own, self._resized.wanted):
                self._resized.begin(rows, wanted)

    def _is_stale(self, rows: int) -> bool:
        """Whether the batch is one that the script has made before the variables were set. What they come to is seen here."""
        size = self._driver.trial.size
        if not self._variables or self._follow is False:
            return False
        if rows == size:
            self._reached = True
            self._follow = self._follow or size != self._before or None
            return False
        if self._rounds >= AHEAD and rows == self._before and self._follow is None:
            self._follow = False
            self._variables.restore(sys._getframe())
        self._stale = self._follow is True and rows == self._before and self._rounds < AHEAD
        if self._follow and not self._stale and not self._reached and rows < size and self._rounds:
            self._instruments.telemetry.warn("few_rows", FEW_ROWS % rows)
        return self._stale

    # -- a first look

    def _look(self, tree: Any) -> None:
        """Time may come first: where a variable says that it is the second dimension which counts samples."""
        frame = sys._getframe()
        found: dict[int, tuple[int | None, Variables | None]] = {}
        for dim in (0, 1):
            self._resized.dim = dim
            rows = self._resized.rows_of(tree)
            found[dim] = rows, None if rows is None else Variables(rows, frame)
        self._resized.dim = 1 if found[1][1] and not found[0][1] else 0
        self.rows, self._variables = found[self._resized.dim]
        self.suitable = self.rows is None or self._resized.fits(tree, self.rows)

    def _place(self, module: Module) -> Any:
        """The line of the script that the call is made from, of this module."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and not is_user_code(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else (id(module), frame.f_code, frame.f_lasti)
