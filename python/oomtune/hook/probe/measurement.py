"""What one probe costs: peaks by phase, seconds and allocator retries by step."""

from __future__ import annotations

import time

from .input_shapes import InputShapes
from .step_phases import StepPhases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..messages import Costs
    from ..types import Memory
    from ..watch.optimizers import Optimizers
    from .breakdown import MemoryBreakdown
    from .needed_memory import NeededMemory


#: The most extra steps to wait for an optimizer that has stepped before.
MOST_EXTRA_STEPS = 32


class Measurement:
    """`skip`: optimizer steps to ignore first, since batches of the earlier size are still on their way. `vary`: every other
    step has other samples than the longest, since changing lengths fragment a caching allocator's memory, and micro-batches of
    so many tokens have more of short samples; those steps come on top of `steps`."""

    def __init__(
        self,
        memory: Memory,
        breakdown: MemoryBreakdown,
        steps: int,
        skip: int = 0,
        phases: StepPhases | None = None,
        vary: bool = False,
        needed: NeededMemory | None = None,
    ) -> None:
        self._memory = memory
        self._breakdown = breakdown
        self._needed = needed
        #: Every other step has other samples than the longest.
        self.varies = vary
        self.wanted = 2 * steps if vary else steps
        self.skip = skip
        #: This step has the smaller batch that a pass ends with.
        self.ends_pass = False
        #: Steps that were measured, and the seconds of those that had as many samples as asked for, none of them shorter.
        self.steps = 0
        self._seconds: list[float] = []
        self.phases = phases or StepPhases(memory)
        self.shapes = InputShapes()
        self._allocator = AllocatorHistory(memory)
        self._clock: float | None = None
        self._retries: int | None = None
        self._failures = memory.failures()

    def start_clock(self) -> None:
        if self._clock is None:
            self._memory.synchronize()
            self._clock = time.perf_counter()

    def step_done(self) -> None:
        self._memory.synchronize()
        now = time.perf_counter()
        smaller = self.ends_pass or self.varied_step() is not None
        self.phases.step_ends(least=smaller)
        self.shapes.step_done()
        if self._clock is not None:
            self.steps += 1
            if not smaller:
                self._seconds.append(now - self._clock)
        self.ends_pass = False
        self._clock = now
        self._allocator.step_done()
        if self.skip > 0:
            self.skip -= 1
            self.steps, self._seconds = 0, []
            self.phases.clear()
            self.shapes.clear()
            self._allocator.clear()
        else:
            # The first step may retry while the cache fills; later steps are the steady state.
            if self._retries is None:
                self._retries = self._memory.retries()
            if self._needed is not None:
                self._needed.begin()

    @property
    def gives_back(self) -> bool:
        """The caching allocator has given back its cache in a steady step."""
        return self._retries is not None and self._memory.retries() > self._retries

    def measure_gradients(self) -> None:
        """In the first step only, whose seconds do not count."""
        if self.steps == 0:
            self._breakdown.see_gradients()

    def varied_step(self) -> int | None:
        """The number of this step if it has other samples than the longest; else None."""
        return self.steps if self.varies and self.steps % 2 == 1 else None

    def extend(self, steps: int) -> None:
        """Continues for more steps. Restarts the clock, as the wait for the worker belongs to no step."""
        self.wanted += steps
        self._clock = None

    def complete(self, optimizers: Optimizers) -> bool:
        """Enough steps, and two of each optimizer (a generator may step once in five of its critic's): its first makes the
        state that its second backward pass finds in memory."""
        if self.steps < self.wanted:
            return False
        if optimizers.step_is_missing(2) and self.steps < self.wanted + MOST_EXTRA_STEPS:
            return False
        optimizers.stop_waiting()
        return True

    def costs(self) -> Costs:
        needed, pieces = (None, None) if self._needed is None else self._needed.end()
        return {
            **self.phases.peaks(),
            "grows_with_shapes": self.shapes.explain(self.phases.starts),
            **self._breakdown.figures(),
            "needed_bytes": needed,
            "pieces_bytes": pieces,
            "steps": self.steps,
            "step_s": [round(seconds, 6) for seconds in self._seconds],
            "alloc_retries": self._memory.retries() - (self._retries or 0),
            "flexible_workspaces": self._breakdown.may_do_with_less(),
            # A loop that does not survive a refusal measures nothing.
            "workspaces_refused": self._memory.failures() > self._failures,
            # With changing lengths no allocator comes to rest.
            "quiet_steps": None if self.varies else self._allocator.quiet_steps(),
            "creep_bytes_per_step": None if self.varies else self._allocator.creep(),
        }


class AllocatorHistory:
    """Figures of the caching allocator at the end of each step. None: there is no such allocator."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        #: (bytes held, bytes ever taken, retries) at the end of each step.
        self._ends: list[tuple[int, int, int]] = []

    def step_done(self) -> None:
        reserved = self._memory.reserved()
        if reserved is not None:
            self._ends.append((*reserved, self._memory.retries()))

    def clear(self) -> None:
        del self._ends[:]

    def quiet_steps(self) -> int | None:
        """Latest steps in a row without a request to the device's driver, and without a retry."""
        if not self._ends:
            return None
        marks = [end[1:] for end in self._ends]
        return sum(1 for mark in marks if mark == marks[-1]) - 1

    def creep(self) -> Any:
        """Growth of the bytes held, per step, over the later half of the steps; None: too few steps."""
        middle = len(self._ends) // 2
        steps = len(self._ends) - 1 - middle
        return (self._ends[-1][0] - self._ends[middle][0]) / steps if steps >= 2 else None
