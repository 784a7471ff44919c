"""Measures the first steps of a job that runs as it stands, so that what it takes can be recorded. Only looks: peaks are not
reset, and the loop keeps its own batches and iterators."""

from __future__ import annotations

import contextlib
import functools
import sys
import time

from ..watch.growing_variables import GrowingVariables
from ..watch.loader import batch_and_samples
from ..watch.memory import device_memory
from .batch_call import BatchCall
from .batch_count import BatchCount
from .batch_resizer import BatchResizer
from .breakdown import MemoryBreakdown
from .call_resizer import mentions_loaders
from .call_rows import CallRows
from .measurement import AllocatorHistory
from .probe import SEEN
from .step_phases import FORWARD_BACKWARD, OPTIMIZER, rise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..messages import Capabilities, Measured, TrainingLoop
    from ..types import Call, Loader, Memory, Module


#: Optimizer steps after which a measurement is sent. The first makes the optimizer's state; after the last, a leak is known.
MARKS = (2, 5, 10, 20, 40)
#: Steps after which the script's variables are noted, if its memory seems to grow.
LOOK = 5
NOTHING: Capabilities = {
    "batch": False,
    "accumulation": False,
    "amp": False,
    "fp16": False,
    "checkpointing": False,
    "checkpointed_blocks": 0,
    "offload": False,
    "offloaded_part": False,
    "chunked_loss": False,
    "activation_memory_budget": False,
    "optimizer_on_host": False,
    "optimizer_8bit": False,
    "bf16_weights": False,
    "switch_rung": False,
}


class FirstSteps:
    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._torch = instrumentation.torch
        #: Samples of the batches that the script trains on; None: not known (yet).
        self.batch: int | None = None
        self._batch_call = BatchCall()
        self._samples: int | None = None
        self._batches = BatchCount()
        #: The loader of the latest loop that did not seem to train.
        self._passed: Loader | None = None
        self._backwards = 0
        self._steps = 0
        #: Batches, backward passes and seconds at the end of the first step.
        self._begun = (0, 0, 0.0)
        self._memory: Memory | None = None
        self._peaks: Peaks | None = None
        self._breakdown: MemoryBreakdown | None = None
        self._allocator: AllocatorHistory | None = None
        self._retries = 0
        #: Bytes in use at the end of each step.
        self._live: list[Any] = []
        self._growing: GrowingVariables | None = None
        #: Steps made when the variables were noted.
        self._looked = 0
        self._last: Measured | None = None
        #: The connection over which the last measurement went.
        self._told = 0

    def install(self) -> None:
        kind = self._torch.utils.data.dataloader._BaseDataLoaderIter
        original: Call = kind.__next__
        watch = self

        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            if not watch.counting:
                return original(self)
            try:
                batch = original(self)
            except StopIteration:
                watch._batches.ended(self)
                raise
            watch._batches.drew(self)
            return batch

        kind.__next__ = __next__
        if not mentions_loaders():
            calls = self._instrumentation.cut.calls
            calls.install()
            calls.before = self._before_call

    def retire(self) -> None:
        """Counts no more: another controller has taken the process over."""
        self._steps = MARKS[-1]
        self._instrumentation.cut.calls.before = None

    @property
    def counting(self) -> bool:
        return self._steps < MARKS[-1]

    # -- called by the controller

    def loop_begins(self, loader: Loader) -> None:
        # A loop that has ended without a backward pass only looked at a batch or so.
        ended = self._backwards == 0 and self._batches.is_over
        if not self.counting or not (ended or not self._batches.has_taken):
            return
        if self._hook.phase == "train":
            self._take(loader)
        else:
            self._passed = loader

    def before_backward(self) -> None:
        self._backwards += 1
        self._batches.backward()
        if self._batch_call.found is None:
            self._batch_call.backward()
            self._take_call()

    def before_step(self) -> None:
        if self._breakdown is not None and self.counting:
            self._peaks_of(FORWARD_BACKWARD)
            self._breakdown.see_gradients()

    def after_step(self) -> None:
        if self._last is not None and self._hook.connection.opened != self._told:
            self._tell()  # another daemon has taken the job over
        if not self.counting:
            return
        self._steps += 1
        if self._memory is None:
            self._begin()
        if self._memory is not None and self._steps in MARKS:
            self._memory.measure()
        self._peaks_of(OPTIMIZER)
        if self._memory is None or self._allocator is None:
            return
        self._allocator.step_done()
        self._live.append(self._memory.live())
        if self._steps == 1:
            self._synchronize(self._memory)
            self._retries = self._memory.retries()
            self._begun = (self._batches.total, self._backwards, time.perf_counter())
        if self._growing is None and self._steps > LOOK and (rise(self._live[1:]) or 0) > 0:
            self._growing = GrowingVariables(self._torch)
            self._growing.snapshot()
            self._looked = self._steps
        if self._steps in MARKS:
            self._last = self._measured(self._memory)
            self._tell()

    # -- what the loop is

    def _take(self, loader: Loader) -> None:
        self._batches.take(loader._index_sampler)
        self.batch, self._samples = batch_and_samples(loader)
        self._passed = None

    def _begin(self) -> None:
        """The first step was made."""
        passed, batches = self._passed, self._batches
        if not batches.has_taken and passed is not None and batches.has_drawn(passed._index_sampler):
            self._take(passed)
        memory = self._memory = self._instrumentation.memory = device_memory(self._torch)
        self._peaks = Peaks()
        self._allocator = AllocatorHistory(memory)
        instrumentation = self._instrumentation
        self._breakdown = MemoryBreakdown(
            self._torch, instrumentation.optimizers, instrumentation.modules, memory.device
        )

    def _before_call(self, module: Module, args: Any, kwargs: Any) -> Any:
        """A call of a model in a script that speaks of no loader: how many rows has it, if it trains?"""
        calls = self._instrumentation.cut.calls
        if not calls.begins(module):
            return None
        self._hook.phase = "train"
        self._batch_call.made(CallRows(BatchResizer(self._torch), (args, kwargs), sys._getframe()))
        self._take_call()
        return args, kwargs, contextlib.nullcontext()  # modules inside make no batch's call

    def _take_call(self) -> None:
        """Takes the batch of a call of a model, if it is known which one has it."""
        found = self._batch_call.found
        if found is not None:
            self._instrumentation.cut.calls.before = None
            if not self._batches.has_taken and found.suitable:
                self.batch = found.count

    # -- figures

    def _peaks_of(self, phase: str) -> None:
        if self._memory is not None and self._peaks is not None:
            self._peaks.note(phase, *self._memory.peaks())

    def _synchronize(self, memory: Memory) -> None:
        """Not within the capture of a CUDA graph, which waiting for the device would break."""
        cuda = self._torch.cuda
        if not (cuda.is_available() and cuda.is_initialized() and cuda.is_current_stream_capturing()):
            memory.synchronize()

    def _measured(self, memory: Memory) -> Measured | None:
        """None: not known of what size the batches are. A script that has got over an error may go on with other ones."""
        if memory.failures():
            return None
        batches, backwards, since = self._begun
        steps = self._steps - 1
        self._synchronize(memory)
        seconds = time.perf_counter() - since
        each = (self._batches.total - batches) / steps or (self._backwards - backwards) / steps
        accumulation = self._hook.trainer_accumulation or max(1, round(each))
        if self.batch is None or self._peaks is None or self._breakdown is None or self._allocator is None:
            return None
        growth = rise(self._live[1:])
        message: Any = {
            "t": "measured",
            "micro_batch": self.batch,
            "accumulation": accumulation,
            **self._peaks.figures(),
            "resident_bytes": max((live for live in self._live if live is not None), default=None),
            "growth_bytes_per_step": growth,
            "spread_bytes": None,
            "excess_bytes": None,
            **self._breakdown.figures(),
            "steps": self._steps,
            # Where several optimizers step in turn on one batch, their steps count as one.
            "step_s": [round(seconds / steps / (each if 0 < each < 1 else 1), 6)],
            "alloc_retries": memory.retries() - self._retries,
            "quiet_steps": self._allocator.quiet_steps(),
            "creep_bytes_per_step": self._allocator.creep(),
            "kept_by": self._keeper(growth),
            "own_accumulation": accumulation,
            "unchunked": None,
            "own_amp": False,
        }
        return message

    def _keeper(self, growth: int | None) -> str | None:
        if self._growing is None or not growth:
            return None
        steps = self._steps - self._looked
        return self._growing.grown_within(steps, SEEN * growth * steps)

    def _tell(self) -> None:
        connection = self._hook.connection
        connection.open()
        self._told = connection.opened
        if self._hook.fork_point is not None and self._hook.fork_point.refusal is not None:
            connection.send({"t": "plain", "message": self._hook.fork_point.refusal})
        loop: TrainingLoop = {
            "t": "loop",
            "own_batch": self.batch,
            "own_accumulation": None if self._last is None else self._last["own_accumulation"],
            "samples": self._samples,
            "place": "loader" if self._batches.has_taken else "call",
            "can": NOTHING,
            "why_not": {},
            "warnings": [],
        }
        connection.send(loop)
        if self._last is not None:
            connection.send(self._last)


class Peaks:
    """Peaks of a process that nobody resets: the phase in which one last rose is the phase that it belongs to."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._reserved: int | None = None
        self._highest: int | None = None
        self._in: dict[str, int] = {}

    def note(self, phase: str, total: int | None, allocated: int | None, reserved: int | None) -> None:
        self._total, self._reserved = total, reserved
        # What the first step finds may be of the time before it.
        if allocated is not None and self._highest is not None and allocated > self._highest:
            self._in[phase] = allocated
        self._highest = allocated

    def figures(self) -> Any:
        forward, step = self._in.get(FORWARD_BACKWARD), self._in.get(OPTIMIZER)
        highest = max(self._in.values(), default=None)
        if highest is None or highest != self._highest:
            forward = step = None
        return {
            "total_bytes": self._total,
            "forward_backward_bytes": forward,
            "optimizer_bytes": step,
            "reserved_bytes": self._reserved,
        }
