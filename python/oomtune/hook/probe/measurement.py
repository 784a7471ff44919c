"""What one probe cost: peaks by phase, seconds and allocator retries by step."""

from __future__ import annotations

import time

from .phases import Phases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..messages import Costs
    from ..types import Memory
    from ..watch.optimizers import Optimizers
    from .breakdown import MemoryBreakdown


#: Steps more that are waited for an optimizer that has stepped before.
MOST_EXTRA_STEPS = 32


class Measurement:
    """`skip`: optimizer steps to let pass first, since batches of the size before are still on their way. `breakdown`:
    tells what stays in memory from step to step. `vary`: every other step has other samples than the longest, since
    lengths that change are what a caching allocator's memory falls to pieces over; those steps come on top."""

    def __init__(
        self,
        memory: Memory,
        breakdown: MemoryBreakdown,
        steps: int,
        skip: int = 0,
        phases: Phases | None = None,
        vary: bool = False,
    ) -> None:
        self._memory = memory
        self._breakdown = breakdown
        self._vary = vary
        self.wanted = 2 * steps if vary else steps
        self.skip = skip
        self.phases = phases or Phases(memory)
        self.seconds: list[float] = []
        self._allocator = AllocatorHistory(memory)
        self._clock: float | None = None
        self._retries: int | None = None

    def start_clock(self) -> None:
        if self._clock is None:
            self._memory.synchronize()
            self._clock = time.perf_counter()

    def step_done(self) -> None:
        self._memory.synchronize()
        now = time.perf_counter()
        if self._clock is not None:
            self.seconds.append(now - self._clock)
        self._clock = now
        self._allocator.step_done()
        if self.skip > 0:
            self.skip -= 1
            self.seconds = []
            self.phases.clear()
            self._allocator.clear()
        elif self._retries is None:
            # The first step may retry while the cache finds its shape; later ones are the steady state.
            self._retries = self._memory.retries()

    @property
    def steps(self) -> int:
        return len(self.seconds)

    def gradients_are_made(self) -> None:
        """Looked at in the first step only: it is not one whose seconds count."""
        if not self.seconds:
            self._breakdown.see_gradients()

    def turn(self) -> int | None:
        """Which step this is, if it is one for other samples; else None."""
        step = len(self.seconds)
        return step if self._vary and step % 2 == 1 else None

    def extend(self, steps: int) -> None:
        """Goes on where it was. The wait for the worker is nobody's step."""
        self.wanted += steps
        self._clock = None

    def complete(self, optimizers: Optimizers) -> bool:
        """Enough steps, and of each optimizer at least one: a generator's may come once in five of its critic's."""
        done = len(self.seconds)
        if done < self.wanted:
            return False
        if optimizers.awaited() and done < self.wanted + MOST_EXTRA_STEPS:
            return False
        optimizers.give_up()
        return True

    def report(self) -> Costs:
        # Steps of shorter samples are faster: they tell nothing of the size.
        timed = self.seconds[::2] if self._vary else self.seconds
        return {
            **self.phases.report(),
            **self._breakdown.report(),
            "steps": len(self.seconds),
            "step_s": [round(seconds, 6) for seconds in timed],
            "alloc_retries": self._memory.retries() - (self._retries or 0),
            # Where lengths change from step to step no allocator comes to rest.
            "quiet_steps": None if self._vary else self._allocator.quiet_steps(),
            "creep_bytes_per_step": None if self._vary else self._allocator.creep(),
        }


class AllocatorHistory:
    """Told at the end of each step. None: there is no such allocator here."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        #: (bytes held, bytes ever asked for, retries) at the end of each step.
        self._ends: list[tuple[int, int, int]] = []

    def step_done(self) -> None:
        reserved = self._memory.reserved()
        if reserved is not None:
            self._ends.append((*reserved, self._memory.retries()))

    def clear(self) -> None:
        del self._ends[:]

    def quiet_steps(self) -> int | None:
        """Steps at the end in which nothing was asked of the driver, and the cache was not given back."""
        if not self._ends:
            return None
        marks = [end[1:] for end in self._ends]
        return sum(1 for mark in marks if mark == marks[-1]) - 1

    def creep(self) -> Any:
        """Bytes by which what is held rises with each step, in the later half of them; None: too few to tell."""
        middle = len(self._ends) // 2
        steps = len(self._ends) - 1 - middle
        return (self._ends[-1][0] - self._ends[middle][0]) / steps if steps >= 2 else None
