"""What a running job tells of itself: steps, memory at each, evaluation, saving, and things worth a warning."""

from __future__ import annotations

import functools
import inspect
import sys
import time

from ..watch.growing import GrowingVariables
from ..watch.loader import own_batch
from ..watch.memory import find_memory
from ..watch.script import SourceFile, is_user_code
from ..watch.trees import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable, Iterator

    from ..hook import Hook
    from ..instruments import Instruments
    from ..types import Loader, Module, Torch


_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: Steps that are all reported; later ones after so many seconds, or so much of the steps made: what a fast loop leaves behind
#: fills the memory within seconds.
FIRST, SECONDS, PART = 10, 5.0, 0.1
#: Part of the memory in use that a variable has grown by if it is to blame that there is no more.
MOST = 0.25
#: Variables are looked at again once so many times the memory of the first steps is in use: a healthy job is let be.
GROWN = 1.5


class Telemetry:
    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._torch = instruments.torch
        self._memory = None
        self._steps = 0
        self._told = 0.0
        self._told_step = 0
        self._growing: GrowingVariables | None = None
        #: In use when the variables were looked at.
        self._held = 0
        self._batch = None
        self._warned: set[str] = set()
        self._evaluating = False
        self._said: dict[str, float] = {}
        self.loop_end = LoopEnd(is_user_code)

    def loop(self, loader: Loader) -> None:
        """A loop over a loader begins."""
        training = self._instruments.training
        if len(self._instruments.optimizers) == 0:
            return
        if training.likely():
            self._evaluating = False
            self._hook.phase = "train"
            self.loop_end.began()
            self._batch = self._batch or own_batch(loader)
            tensors = getattr(loader.dataset, "tensors", ())
            if any(getattr(tensor, "is_cuda", False) for tensor in tensors):
                self.warn("dataset_on_device", "The data set lies on the device and takes memory from the training.")
        else:
            self._hook.phase = "eval"
            self._say("eval", "an evaluation loop begins")
            if training.evaluating() and self._torch.is_grad_enabled() and not self._evaluating:
                self._evaluating = True
                self._watch_graph()

    def stepped(self) -> None:
        self._steps += 1
        self.loop_end.stepped()
        self._instruments.training.stepped()
        self._hook.phase = "train"
        if not self._wants():
            return
        self._told, self._told_step = time.monotonic(), self._steps
        if self._memory is None:
            self._memory = self._instruments.memory = find_memory(self._torch)
        settings = self._hook.settings
        batch = self._batch if "micro_batch" not in settings.knobs else None
        per_step = batch or (settings.micro_batch or 0) * settings.accumulation
        live = self._memory.live()
        self._hook.link.send(
            {
                "t": "step",
                "n": self._steps,
                "samples": self._steps * per_step,
                "resident_bytes": live,
                "kept_by": self._kept(live or 0),
            }
        )
        if self._steps == FIRST:
            self._growing = GrowingVariables(self._torch)
            self._growing.look()
            self._held = live or 0

    def _kept(self, live: int) -> str | None:
        """The variable that grows with the memory: told while there is time, for native code may end the process without an error."""
        if self._growing is None or live < GROWN * self._held:
            return None
        return self._growing.named_at(sys._getframe(1), MOST * live)

    def keeper(self, trace: TracebackType | None) -> str | None:
        """The variable that has grown, since the first steps, by a good part of what was in use where `trace` ends; None: none
        was seen."""
        if self._growing is None or self._memory is None or trace is None:
            return None
        while trace.tb_next is not None:
            trace = trace.tb_next
        return self._growing.named_at(trace.tb_frame, MOST * (self._memory.live() or 0))

    def _wants(self) -> bool:
        if self._steps <= FIRST or self._steps - self._told_step >= max(1, PART * self._told_step):
            return True
        return time.monotonic() - self._told >= SECONDS

    def warn(self, code: str, message: str) -> None:
        if code not in self._warned:
            self._warned.add(code)
            self._hook.link.send({"t": "warn", "code": code, "message": message})

    def saving(self) -> None:
        self._say("save", "a checkpoint is written")

    def _say(self, kind: str, message: str) -> None:
        now = time.monotonic()
        if now - self._said.get(kind, -SECONDS) >= SECONDS:
            self._said[kind] = now
            self._hook.link.send({"t": kind, "message": message})

    def _watch_graph(self) -> None:
        """model.eval() alone does not stop torch from keeping activations: look whether they are kept."""
        for root in self._instruments.modules.roots():
            self._instruments.rung.watch(root, self._look)

    def _look(self, module: Module, output: Any) -> None:
        if module.training or "eval_builds_graph" in self._warned:
            return
        for leaf in leaves(output):
            if isinstance(leaf, self._torch.Tensor) and leaf.grad_fn is not None:
                self.warn(
                    "eval_builds_graph",
                    "The evaluation keeps activations for a backward pass that never comes: wrap it in torch.no_grad().",
                )
                return


def tell_saves(torch: Torch, hook: Hook, telemetry: Telemetry) -> None:
    """Keeps the phase while a checkpoint is written: running out of memory there has another remedy."""
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        before, hook.phase = hook.phase, "save"
        telemetry.saving()
        result = original(*args, **kwargs)
        hook.phase = before
        return result

    torch.save = save
    torch.serialization.save = save


class LoopEnd:
    """Knows where the script's own code goes round over its loader and where it steps. `is_user_code(path)`."""

    def __init__(self, is_user_code: Callable[[str], bool]) -> None:
        self._is_user_code = functools.lru_cache(maxsize=None)(is_user_code)
        #: (code, loop) that goes over the loader of the training; None: it is not the script's own.
        self._loop = None
        #: (code, line) of the script from which the latest step was made.
        self._step = None

    def began(self) -> None:
        """A loop over a training loader begins. A generator's own frame is in no traceback: whoever asks it goes round."""
        self._loop = self._step = None
        for code, line in self._places(sys._getframe(1)):
            loop = None if code.co_flags & _SUSPENDED else SourceFile(code.co_filename).loop(line)
            if loop is not None:
                self._loop = code, loop
                return

    def stepped(self) -> None:
        self._step = next(self._places(sys._getframe(1)), None)

    def passed(self, trace: TracebackType | None) -> bool:
        """Whether the loop had ended where this traceback comes from. What cannot be told is no."""
        if self._step is None:
            return False
        lines: dict[CodeType, int] = {}
        while trace is not None:
            lines[trace.tb_frame.f_code] = trace.tb_lineno
            trace = trace.tb_next
        code, line = self._step
        around = SourceFile(code.co_filename).loop(line)
        if code in lines and (lines[code] == line or (around is not None and around.holds(lines[code]))):
            return False
        if self._loop is None:
            # A library's loop: the script has gone on from the line that had it train.
            return code in lines
        code, loop = self._loop
        return code not in lines or not loop.holds(lines[code])

    def _places(self, frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
        """The script's own functions that are running, innermost first."""
        while frame is not None:
            if self._is_user_code(frame.f_code.co_filename):
                yield frame.f_code, frame.f_lineno
            frame = frame.f_back
