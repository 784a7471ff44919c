"""Sets the batch size at the model's call, in a loop that makes its batches without a DataLoader.

If a variable of the script holds the batch size, sets it: the script makes its next batches by it. Until those come, or
without such a variable, resizes the model's inputs, and labels where they meet the model's outputs.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import sys

from ..watch.script import is_user_code
from .batch_call import BatchCall
from .batch_resizer import BatchResizer
from .call_rows import CallRows
from .row_alignment import RowAlignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, ContextManager, Optional, Tuple

    from ..instrumentation import Instrumentation
    from ..types import Module
    from .batch_size_variables import BatchSizeVariables
    from .probe_controller import ProbeController

    Made = Optional[Tuple[Any, Any, ContextManager[None]]]


#: Iterations for which batches of the earlier size may still come: loops fetch some ahead.
AHEAD = 4
FEW_ROWS = "The script's own data makes batches of at most %d: larger ones were made by repeating samples."
_LOADS = re.compile(r"Loader\b|Trainer\b|\.fit\(")


@functools.lru_cache(maxsize=1)
def mentions_loaders() -> bool:
    """Whether the script's own files mention a loader: it may be asked for batches later."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        users = name == "__main__" or is_user_code(path)
        if users and _LOADS.search("".join(linecache.getlines(path))):
            return True
    return False


class CallResizer:
    def __init__(self, instrumentation: Instrumentation, driver: ProbeController) -> None:
        self._instrumentation = instrumentation
        self._controller = driver
        self._calls = instrumentation.cut.calls
        #: True: batch sizes are set here.
        self.on = False
        self._batch_call = BatchCall()
        self._resizer = BatchResizer(instrumentation.torch)
        self._alignment = RowAlignment(instrumentation.torch, self._resizer, instrumentation.optimizers)
        #: Whether the script's batches follow the variables; None: unknown yet.
        self._follow: bool | None = None
        #: Rows of the next batch, if they change; None: they do not.
        self._next: int | None = None
        #: Rows of the batches from before the size was set, and iterations since then.
        self._before = 0
        self._iterations = 0
        #: The script has made a batch of the wanted size.
        self._reached = False
        #: The sizes that its variables had so far: a generator may make batches of one of them for a pass more.
        self._asked: set[int] = set()
        #: Rows of the latest batch that had fewer than the wanted ones; None: none had.
        self._fewer: int | None = None
        #: The call that counts as one batch each time it is made.
        self._site: Any = None
        #: Backward passes when it was last made, and whether it is repeated without one in between.
        self._backwards = 0
        self._repeats = False
        #: Optimizer steps in this iteration, and per iteration.
        self._steps = 0
        self._steps_each: int | None = None
        self._stale = False

    @property
    def rows(self) -> int | None:
        """Samples in the script's own call of the model; None: no call was seen."""
        return None if self._batch_call.found is None else self._batch_call.found.count

    @property
    def suitable(self) -> bool:
        """Each input has a row for each of them."""
        return self._batch_call.found is None or self._batch_call.found.suitable

    @property
    def _variables(self) -> BatchSizeVariables | None:
        return None if self._batch_call.found is None else self._batch_call.found.variables

    def watch(self) -> None:
        self._calls.before = self._before_call

    def unwatch(self) -> None:
        self._calls.before = None

    def release(self) -> None:
        self.on = False
        self.unwatch()
        self._alignment.close()
        if self._variables:
            self._variables.restore(sys._getframe())

    # -- called by the controller

    def begin(self) -> None:
        self.on = True
        self.watch()
        self._before = self.rows or 1

    def set_size(self, before: int | None, size: int) -> None:
        """From now on batches shall have `size` rows; until now they had `before` (None: nothing was asked for)."""
        # Code after the step may still use the earlier batch: the change comes with the next call.
        self._next = size
        self._fewer = None
        if self._variables and self._follow is not False:
            self._asked |= {self.rows or 1, before or 1}
            if before is not None and size != before:
                self._before, self._iterations, self._reached = before, 0, False
            self._variables.set(size, sys._getframe())

    def backward(self) -> None:
        """A backward pass of the script begins."""
        self._batch_call.backward()

    def stepped(self) -> bool:
        """An optimizer has stepped. Returns whether that was the iteration's last step."""
        self._steps += 1
        return self._steps == self._steps_each

    def iteration_done(self) -> bool:
        """An iteration is over. Returns whether its batch was still of the earlier size."""
        if self._steps:
            self._steps_each = self._steps
        stale, self._stale, self._steps = self._stale, False, 0
        self._iterations += 1
        return stale

    # -- calls of modules

    def _before_call(self, module: Module, args: Any, kwargs: Any) -> Made:
        instrumentation = self._instrumentation
        if not instrumentation.active or instrumentation.backward.running:
            return None
        if not self._calls.begins(module):
            return self._resized_untrained(module, args, kwargs)
        tree, site = (args, kwargs), self._call_site(module)
        if self.rows is None:
            self._inspect(module, tree, site)
        as_it_is = (args, kwargs, contextlib.nullcontext())
        if self.rows is None:
            return as_it_is
        if not (self.on or self._controller.starts_at_call()):
            return None
        rows = self._resizer.rows_of(tree)
        if rows is None:
            return None
        self._site = self._site or self._batch_call.site or site
        if self._is_one_sample(tree) and (self._site != site or site == self._batch_call.doubted_site):
            return as_it_is
        if self._site == site:
            self._next_batch(rows)
        elif 1 not in (self._resizer.own, self._resizer.wanted) and self._resizer.is_single(tree):
            return as_it_is  # an agent acts between its batches
        if not self.on:
            return None  # the script goes on unchanged
        self._controller.note_inputs(tree)
        return self._resized_call(tree, rows)

    def _is_one_sample(self, tree: Any) -> bool:
        """Whether an agent acts between its batches, on one sample without a dimension for rows, which its batches have."""
        found = self._batch_call.found
        return found is not None and not found.doubtful and self._resizer.has_no_rows(tree)

    def _resized_untrained(self, module: Module, args: Any, kwargs: Any) -> Made:
        """A call of a teacher, or another model that is not trained: it gets the same batch."""
        if not self.on or not self._resizer.differs or self._calls.stepped(module):
            return None
        tree = (args, kwargs)
        if next(module.parameters(), None) is None or self._resizer.rows_of(tree) != self._resizer.own:
            return None
        if self._is_one_sample(tree):
            return None
        if self._next is not None:
            self._resizer.begin(self._resizer.own, self._next)
            self._next = None
        return self._resized_call(tree, self._resizer.own)

    def _resized_call(self, tree: Any, rows: int) -> Made:
        own, wanted = self._resizer.own, self._resizer.wanted
        if own == wanted:
            return (*self._resizer.inputs(tree), contextlib.nullcontext())
        views = 1
        if rows not in (own, wanted):
            # Several views of each sample in one call.
            part = own if own > 1 and rows % own == 0 else wanted
            views = rows // part if rows % part == 0 else 1
        self._alignment.open()
        return (*self._resizer.inputs(tree, views), self._alignment.suspended())

    def _next_batch(self, rows: int) -> None:
        """The call that counts as a batch is made."""
        done = self._controller.backwards
        begins = self._controller.begins_step
        if begins or done > self._backwards:
            self._controller.model_called()
        elif not self._repeats:
            self._controller.check_caught_oom()
            self._repeats = True
        self._backwards = self._controller.backwards
        if self.on:
            self._next = None
            wanted = rows if self._is_stale(rows) else self._controller.probe.size
            if begins or (rows, wanted) != (self._resizer.own, self._resizer.wanted):
                self._resizer.begin(rows, wanted)

    def _is_stale(self, rows: int) -> bool:
        """Whether the script made this batch before the variables were set. Learns here whether batches follow them."""
        size = self._controller.probe.size
        # An agent acts at the line at which it learns.
        self._stale = rows == 1 != size and self._site == self._batch_call.doubted_site
        if self._stale or not self._variables or self._follow is False:
            return self._stale
        if rows == size:
            self._reached = True
            self._follow = self._follow or size != self._before or None
            return False
        if self._iterations >= AHEAD and rows == self._before and self._follow is None:
            self._follow = False
            self._variables.restore(sys._getframe())
        self._stale = self._follow is True and rows == self._before and self._iterations < AHEAD
        if self._follow and not self._stale and not self._reached and 0 < rows < size and rows not in self._asked:
            # A pass ends with what is left (nothing, where its loop is run again): only the data's own limit comes twice.
            if rows == self._fewer:
                self._instrumentation.telemetry.warn("few_rows", FEW_ROWS % rows)
            self._fewer = rows
        return self._stale

    # -- the first call

    def _inspect(self, module: Module, tree: Any, site: Any) -> None:
        """Finds the batch size and its variables."""
        ask = functools.partial(self._instrumentation.cut.sample_dim, module, *tree)
        found = CallRows(self._resizer, tree, sys._getframe(), ask)
        if self._instrumentation.hook.settings.at_call:
            self._batch_call.found = found if found.count else None
            return
        self._batch_call.made(found, site)
        # If that does not fit, nothing does: a size is to be set at the first call, so that it is told.
        self._instrumentation.hook.waited_for_loader = self.rows is None

    def _call_site(self, module: Module) -> Any:
        """Identity of the module and of the script's line that calls it, which a loop that is run again has in other code."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and not is_user_code(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else (id(module), frame.f_code.co_filename, frame.f_lineno)
