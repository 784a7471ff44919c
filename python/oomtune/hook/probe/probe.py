"""The current probe: one micro-batch size on one rung, as the worker requests it, and what it costs."""

from __future__ import annotations

import gc
import math

from ..apply.gradient_accumulator import MicroBatch
from ..apply.knobs import RungKnobs
from ..watch.cudnn import Benchmark
from ..watch.growing_variables import GrowingVariables
from ..watch.loader import last_batch
from .breakdown import MemoryBreakdown
from .cycled_loaders import KEEPER, CycledLoaders
from .measurement import Measurement
from .needed_memory import NeededMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..messages import Measured
    from ..types import Loader, Memory, Message
    from .step_phases import StepPhases


#: The step of a probe that gets the smaller batch that ends a pass, if not a later one, where memory is short.
EARLY = 5
#: Steps after which a long probe takes a snapshot of the script's variables.
LOOK = 3
#: The most micro-batches of a cut call that a probe runs: more would not change its peak.
MOST_PARTS = 8
#: What keeps memory that a collection of garbage frees.
CYCLES = "reference cycles that Python frees only now and then (gc.collect() every few steps does)"
#: A collection must free this part of what has grown, and a variable that keeps it have so much more in it, as far as can be seen.
FREED = 0.5
SEEN = 0.01
#: Fields of the worker's `probe` message besides the knobs of its rung.
REQUEST_FIELDS = ("micro_batch", "accumulation", "steps", "vary", "benchmark", "batch")


class ProbeRequest:
    """What the worker asks for, checked."""

    def __init__(
        self,
        micro_batch: int,
        accumulation: int | None = 1,
        rung: RungKnobs | None = None,
        steps: int | None = 3,
        vary: bool = False,
        benchmark: bool = True,
        batch: int | None = None,
    ) -> None:
        self.micro_batch = max(1, int(micro_batch))
        self.accumulation = max(1, int(accumulation or 1))
        self.rung = rung or RungKnobs()
        self.steps = max(2, int(steps or 3))
        #: Every other step has other samples than the longest.
        self.vary = bool(vary)
        #: cuDNN may try all of its algorithms, if the script lets it.
        self.benchmark = bool(benchmark)
        #: Samples of the batch that the loop will get; None: unknown.
        self.batch = None if batch is None else max(1, int(batch))

    @classmethod
    def from_order(cls, message: Message) -> ProbeRequest:
        rung = RungKnobs(**{name: message[name] for name in RungKnobs.NAMES if name in message})
        return cls(rung=rung, **{name: message[name] for name in REQUEST_FIELDS if name in message})


class Probe:
    """The probe that runs now; one object for all probes of a process."""

    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._accumulator = instrumentation.accumulator
        #: Set when the loop begins.
        self.memory: Memory
        #: None: no probe was requested yet.
        self.request: ProbeRequest | None = None
        #: The process has run no other size.
        self.first = True
        self.measurement: Measurement | None = None
        self._group = 1
        #: Batches handed out; with prefetching, those that have been used in steps.
        self._handed = self._used = 0
        self._failures = 0
        self._growing = GrowingVariables(instrumentation.torch)
        self.cycled = CycledLoaders(instrumentation.torch, self._hook.settings.budget)
        self._benchmark = Benchmark(instrumentation.torch)
        #: Steps made when the snapshot of the variables was taken; None: no snapshot.
        self._looked = None

    def begin(self, request: ProbeRequest, prefetching: bool, variable_length: bool) -> None:
        """Starts a probe, perhaps after others. `prefetching`: another thread fetches the batches ahead; `variable_length`:
        samples differ in length."""
        instrumentation, before = self._instrumentation, self.request
        self.first = before is None
        self.request = request
        # First, as what waits on the host has no room on the device.
        instrumentation.optimizers.reset_state()
        self.cycled.forget_batches()
        instrumentation.rung.switch(request.rung)
        if instrumentation.card is not None:
            # The trace of each size begins as that of a fresh process.
            for parameter in instrumentation.optimizers.parameters():
                parameter.grad = None
        gc.collect()
        self.memory.free_cache()
        skip = 0
        if before is not None:
            # The loop still has batches of the earlier size: fetched ahead, or in its variables.
            ahead = self._handed - self._used if prefetching else self._accumulator.prefetched
            skip = math.ceil(ahead / self.batches_per_step)
            if before.micro_batch > request.micro_batch or before.accumulation != request.accumulation:
                skip = max(1, skip)
        self._failures = self.memory.failures()
        self._looked = None
        # Changing lengths matter to a caching allocator, and where a micro-batch has more samples if they are short.
        vary = variable_length and (self.fragments or self.counts_tokens)
        self.measure(request.steps, skip, vary=vary, benchmark=request.benchmark)
        self.set_group()

    def measure(
        self, steps: int, skip: int = 0, *, phases: StepPhases | None = None, vary: bool = False, benchmark: bool = True
    ) -> None:
        """From the next step on. `benchmark`: cuDNN may try all of its algorithms, if the script lets it; the others are Measurement's."""
        instrumentation, memory = self._instrumentation, self.memory
        self._benchmark.allow(benchmark)
        caching = memory.reserved() is not None
        needed = NeededMemory(instrumentation.torch, memory, instrumentation.modules) if caching else None
        self.measurement = Measurement(memory, self.breakdown(), steps, skip, phases=phases, vary=vary, needed=needed)

    def end(self) -> None:
        """The loop goes on as the script has it."""
        self.measurement = None
        self._benchmark.allow(True)

    @property
    def fragments(self) -> bool:
        """Batches of several sizes leave a caching allocator's memory in pieces, which is to be seen."""
        return self.request is not None and self.request.vary and self.memory.reserved() is not None

    def last_rows(self, loader: Loader) -> int | None:
        """The samples of this step's batch if it ends a pass over the data, which leaves fewer for it; else None. Where memory is so
        short that the cache is given back, the pieces that it leaves are to be seen soon."""
        measurement = self.current
        if not self.fragments or self.batches_per_step * self.parts > 1 or measurement.skip or measurement.varies:
            return None
        rest = last_batch(loader, self.size)
        if rest is None:
            return None
        step = measurement.steps + 1
        return rest[0] if step % rest[1] == 0 or (step == EARLY and measurement.gives_back) else None

    def breakdown(self) -> MemoryBreakdown:
        return MemoryBreakdown(
            self._instrumentation.torch,
            self._instrumentation.optimizers,
            self._instrumentation.modules,
            self.memory.device,
        )

    @property
    def current(self) -> Measurement:
        """The measurement, which must have begun."""
        assert self.measurement is not None
        return self.measurement

    def enter(self, phase: str) -> None:
        if self.measurement is not None:
            self.measurement.phases.enter(phase)

    @property
    def counts_tokens(self) -> bool:
        """Whether micro-batches have as many tokens as so many of the longest samples."""
        return self._hook.settings.counts_tokens and self._hook.settings.probing and not self._hook.loaderless

    @property
    def complete(self) -> bool:
        return self.current.complete(self._instrumentation.optimizers)

    @property
    def batches_per_step(self) -> int:
        return self._group * self._accumulator.own_accumulation

    @property
    def parts(self) -> int:
        """Micro-batches that each batch of the loop is cut into at the model's call; 1: it is not cut."""
        request = self.request
        if (
            request is None
            or request.accumulation == 1
            or not self._hook.settings.probing
            or self._hook.cut_choice()[0] != "model"
        ):
            return 1
        return max(request.accumulation, -(-(request.batch or 0) // request.micro_batch))

    @property
    def size(self) -> int:
        """Samples of the batches that the loop gets."""
        return 1 if self.request is None else self.request.micro_batch * self.parts

    def set_group(self) -> None:
        """Decides how many batches the hook accumulates for one step, and where they are cut."""
        wanted = 1 if self.request is None else self.request.accumulation
        self._group = 1 if self._accumulator.own_accumulation > 1 or self.parts > 1 else wanted
        if self.parts > 1 or self._group > 1:
            self._hook.report_cut()
        if self.request is not None and (self.parts > 1 or self.counts_tokens):
            tokens = 0 if self.counts_tokens else None
            self._instrumentation.cut.engage(self.request.micro_batch, self.size, MOST_PARTS, tokens)
        else:
            self._instrumentation.cut.release()
            if self._group > 1 and self.request is not None and self._hook.adds_up_by_itself:
                self._instrumentation.cut.compared.look(self.request.micro_batch)
        if self._group > 1:
            self._accumulator.engage()
        else:
            self._accumulator.release()

    def batch_handed_out(self) -> None:
        """The loop gets one more batch."""
        index = self._handed % self._group
        self._accumulator.batch_handed_out(
            MicroBatch(self._handed // self._group, index, self._group, 1.0 / self._group)
        )
        self._instrumentation.modules.sync(self._accumulator.exchanges_gradients)
        self.batch_passed_on()

    def batch_passed_on(self) -> None:
        """The loop gets one more batch of its own."""
        self._handed += 1

    def step_done(self, prefetching: bool) -> None:
        if prefetching:
            self._used += self.batches_per_step
        measurement = self.current
        measurement.step_done()
        if measurement.steps >= LOOK and measurement.wanted > 2 * LOOK:
            self.snapshot_variables()

    def snapshot_variables(self) -> None:
        """Once per probe, and not in its first steps: reading the variables of a running function may keep some alive."""
        if self._looked is None:
            self._looked = self.current.steps
            self._growing.snapshot()

    def _keeper(self, growth: float | None) -> str | None:
        """What keeps the memory by which each step grows; None: it does not grow, or that was not found."""
        if not growth or self._looked is None:
            return None
        if self.cycled.grows:
            return KEEPER
        before = self.memory.live() or 0
        gc.collect()
        freed = before - (self.memory.live() or 0)
        steps = self.current.steps
        if freed >= FREED * growth * steps:
            return CYCLES
        return self._growing.grown_within(steps - self._looked, SEEN * growth * (steps - self._looked))

    def oom_since_last_call(self) -> Any:
        """Whether an allocation has failed since the last call."""
        before, self._failures = self._failures, self.memory.failures()
        return self._failures > before

    def measured_message(self) -> Measured:
        """The message that tells what the probe cost."""
        request, costs = self.request, self.current.costs()
        assert request is not None
        if self._instrumentation.card is not None:
            self._instrumentation.card.write(request.micro_batch)
        kept_by = self._keeper(costs["growth_bytes_per_step"])
        return {
            "t": "measured",
            "micro_batch": request.micro_batch,
            "accumulation": self.batches_per_step * min(self.parts, MOST_PARTS),
            "longest_tokens": self._instrumentation.cut.longest or None,
            **costs,
            # What a variable of the script keeps goes on for ever, whatever shapes come.
            "grows_with_shapes": costs["grows_with_shapes"] and kept_by is None,
            "kept_by": kept_by,
            "own_accumulation": self._accumulator.own_accumulation,
            "own_amp": self._instrumentation.own_amp,
            "unchunked": self._instrumentation.rung.unchunked(),
            "blocks": self._instrumentation.rung.block_costs(),
        }
