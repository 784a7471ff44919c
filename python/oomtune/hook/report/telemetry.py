"""What a running job reports: steps with their memory, evaluation, saving, and warnings."""

from __future__ import annotations

import functools
import inspect
import sys
import time

from ..watch.batch_tree import leaves
from ..watch.growing_variables import GrowingVariables
from ..watch.loader import own_batch
from ..watch.script import SourceFile, is_user_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable, Iterator

    from ..hook import Hook
    from ..instrumentation import Instrumentation
    from ..types import Loader, Module, Torch


_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: The first steps are all reported; later ones after this many seconds, or this part more of the steps made: a fast loop with
#: a leak fills the memory within seconds.
FIRST, SECONDS, PART = 10, 1.0, 0.1
#: A variable is to blame for running out of memory if it has grown by this part of the memory in use.
MOST = 0.25
#: Variables are compared only when this many times the memory of the first steps is in use.
GROWN = 1.5


class Telemetry:
    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._torch = instrumentation.torch
        self._memory = None
        self._steps = 0
        self._sent_at = 0.0
        self._sent_step = 0
        self._growing: GrowingVariables | None = None
        #: Bytes in use when the snapshot of the variables was taken.
        self._held = 0
        self._batch = None
        self._warned: set[str] = set()
        self._evaluating = False
        self._said: dict[str, float] = {}
        self.loop_end = LoopEnd(is_user_code)

    @property
    def steps(self) -> int:
        """Optimizer steps so far."""
        return self._steps

    def loop_begins(self, loader: Loader) -> None:
        """A loop over a loader begins."""
        training = self._instrumentation.training_mode
        if not self._instrumentation.optimizers.exist():
            return
        if training.is_training() or self._trainer_begins():
            self._evaluating = False
            self._hook.phase = "train"
            self.loop_end.began()
            if self._steps == 0:  # a loop before it may have looked at a batch only
                self._batch = own_batch(loader) or self._batch
            tensors = getattr(loader.dataset, "tensors", ())
            if any(getattr(tensor, "is_cuda", False) for tensor in tensors):
                self.warn("dataset_on_device", "The data set lies on the device and takes memory from the training.")
        else:
            self._hook.phase = "eval"
            self._send_rarely("eval", "an evaluation loop begins")
            if training.is_evaluating() and self._torch.is_grad_enabled() and not self._evaluating:
                self._evaluating = True
                self._watch_graph()

    def _trainer_begins(self) -> bool:
        """transformers' Trainer sets the training mode only after it has taken its first batches."""
        return self._hook.entry == "trainer" and self._steps == 0 and self._torch.is_grad_enabled()

    def stepped(self) -> None:
        self._steps += 1
        self.loop_end.stepped()
        self._instrumentation.training_mode.stepped()
        self._hook.phase = "train"
        if not self._is_due():
            return
        self._sent_at, self._sent_step = time.monotonic(), self._steps
        if self._memory is None:
            self._memory = self._instrumentation.memory = self._instrumentation.device_memory()
        settings = self._hook.settings
        batch = self._batch if "micro_batch" not in settings.knobs else None
        per_step = batch or (settings.micro_batch or 0) * settings.accumulation
        live = self._memory.live()
        reserved = self._memory.reserved()
        self._hook.connection.send(
            {
                "t": "step",
                "n": self._steps,
                "samples": self._steps * per_step,
                "resident_bytes": live,
                "kept_by": self._growing_now(live or 0),
                "reserved_bytes": None if reserved is None else reserved[0],
                "allocated_peak_bytes": None if reserved is None else self._memory.peaks()[1],
                "alloc_retries": self._memory.retries(),
            }
        )
        if self._steps == FIRST:
            self._growing = GrowingVariables(self._torch)
            self._growing.snapshot()
            self._held = live or 0

    def _growing_now(self, live: int) -> str | None:
        """The variable that grows with the memory. Reported early, as native code may end the process without an error."""
        if self._growing is None or live < GROWN * self._held:
            return None
        return self._growing.grown_by(sys._getframe(1), MOST * live)

    def growing_variable(self, trace: TracebackType | None) -> str | None:
        """The variable whose growth since the first steps is a good part of the memory in use where `trace` ends; None: none."""
        if self._growing is None or self._memory is None or trace is None:
            return None
        while trace.tb_next is not None:
            trace = trace.tb_next
        return self._growing.grown_by(trace.tb_frame, MOST * (self._memory.live() or 0))

    def _is_due(self) -> bool:
        if self._steps <= FIRST or self._steps - self._sent_step >= max(1, PART * self._sent_step):
            return True
        return time.monotonic() - self._sent_at >= SECONDS

    def warn(self, code: str, message: str) -> None:
        if code not in self._warned:
            self._warned.add(code)
            self._hook.connection.send({"t": "warn", "code": code, "message": message})

    def saving(self) -> None:
        self._send_rarely("save", "a checkpoint is written")

    def _send_rarely(self, kind: str, message: str) -> None:
        now = time.monotonic()
        if now - self._said.get(kind, -SECONDS) >= SECONDS:
            self._said[kind] = now
            self._hook.connection.send({"t": kind, "message": message})

    def _watch_graph(self) -> None:
        """Checks whether an evaluation keeps activations: model.eval() alone does not stop torch from it."""
        for root in self._instrumentation.modules.roots():
            self._instrumentation.rung.watch(root, self._look)

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


def watch_saves(torch: Torch, hook: Hook, telemetry: Telemetry, saved: Callable[[Any], None]) -> None:
    """Sets the phase while a checkpoint is written: running out of memory there has another remedy. `saved`: is told what was."""
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        before, hook.phase = hook.phase, "save"
        telemetry.saving()
        result = original(*args, **kwargs)
        hook.phase = before
        saved(args[0] if args else kwargs.get("obj"))
        return result

    torch.save = save
    torch.serialization.save = save


class LoopEnd:
    """Tells whether the training loop had ended: notes where the script loops over its loader, and where it steps."""

    def __init__(self, is_user_code: Callable[[str], bool]) -> None:
        self._is_user_code = functools.lru_cache(maxsize=None)(is_user_code)
        #: (code, loop) over the training loader; None: the loop is not the script's own.
        self._loop = None
        #: (code, line) of the script that made the latest step.
        self._step = None

    def began(self) -> None:
        """A loop over a training loader begins. Generators are skipped, as their frames are in no traceback: their caller loops."""
        self._loop = self._step = None
        for code, line in self._script_lines(sys._getframe(1)):
            loop = None if code.co_flags & _SUSPENDED else SourceFile(code.co_filename).loop(line)
            if loop is not None:
                self._loop = code, loop
                return

    def stepped(self) -> None:
        self._step = next(self._script_lines(sys._getframe(1)), None)

    def had_ended(self, trace: TracebackType | None) -> bool:
        """Whether the loop had ended when the exception of this traceback was raised; False if unknown."""
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
            # A library's loop: the script has gone on from the line that called it.
            return code in lines
        code, loop = self._loop
        return code not in lines or not loop.holds(lines[code])

    def _script_lines(self, frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
        """(code, line) of the script's own running functions, innermost first."""
        while frame is not None:
            if self._is_user_code(frame.f_code.co_filename):
                yield frame.f_code, frame.f_lineno
            frame = frame.f_back
