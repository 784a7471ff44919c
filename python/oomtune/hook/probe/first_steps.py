"""Measures the first steps of a job that runs as it stands, so that what it takes can be recorded. Only looks: peaks are not
reset, and the loop keeps its own batches and iterators."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref

from ..watch.growing_variables import GrowingVariables
from ..watch.loader import batch_and_samples
from ..watch.memory import device_memory
from .batch_call import BatchCall
from .batch_resizer import BatchResizer
from .breakdown import MemoryBreakdown
from .call_resizer import mentions_loaders
from .call_rows import CallRows
from .measurement import AllocatorHistory
from .probe import SEEN
from .step_phases import FORWARD_BACKWARD, OPTIMIZER, rise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

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
        #: Refers to the sampler of the training's loader, whose batches count: a validation may share its data set.
        self._sampler: Callable[[], Any] | None = None
        #: The loader of the latest loop that did not seem to train.
        self._passed: Loader | None = None
        #: Batches that loaders have yielded, by the identity of their sampler.
        self._batches: dict[int, int] = {}
        self._key = 0
        #: The iterator of its latest batch; None: there was none.
        self._iterator: Callable[[], Any] | None = None
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
            batch = original(self)
            if watch.counting:
                watch._count_batch(self)
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

    def _count_batch(self, iterator: Any) -> None:
        sampler = iterator._index_sampler
        key = id(sampler)
        if self._sampler is None or (key == self._key and self._sampler() is sampler):
            self._batches[key] = self._batches.get(key, 0) + 1
            self._iterator = weakref.ref(iterator)

    # -- called by the controller

    def loop_begins(self, loader: Loader) -> None:
        # A loop that has ended without a backward pass only looked at a batch or so.
        ended = self._backwards == 0 and self._iterator is not None and self._iterator() is None
        if not self.counting or not (self._sampler is None or ended):
            return
        if self._hook.phase == "train":
            self._take(loader)
        else:
            self._passed = loader

    def before_backward(self) -> None:
        self._backwards += 1
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
            self._begun = (self._count(), self._backwards, time.perf_counter())
        if self._growing is None and self._steps > LOOK and (rise(self._live[1:]) or 0) > 0:
            self._growing = GrowingVariables(self._torch)
            self._growing.snapshot()
            self._looked = self._steps
        if self._steps in MARKS:
            self._last = self._measured(self._memory)
            self._tell()

    # -- what the loop is

    def _take(self, loader: Loader) -> None:
        sampler = loader._index_sampler
        try:
            self._sampler = weakref.ref(sampler)
        except TypeError:  # a list
            self._sampler = lambda: sampler
        self._key = id(sampler)
        self.batch, self._samples = batch_and_samples(loader)
        self._passed = None

    def _begin(self) -> None:
        """The first step was made."""
        if self._sampler is None and self._passed is not None and self._batches.get(id(self._passed._index_sampler)):
            self._take(self._passed)
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
        if not module.training or not calls.begins(module):
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
            if self._sampler is None and found.suitable:
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

    def _count(self) -> int:
        return self._batches.get(self._key, 0)

    def _measured(self, memory: Memory) -> Measured | None:
        """None: not known of what size the batches are. A script that has got over an error may go on with other ones."""
        if memory.failures():
            return None
        batches, backwards, since = self._begun
        steps = self._steps - 1
        self._synchronize(memory)
        seconds = time.perf_counter() - since
        each = (self._count() - batches) / steps or (self._backwards - backwards) / steps
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
            "place": "call" if self._sampler is None else "loader",
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
