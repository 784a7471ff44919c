"""What one probe cost: peaks by phase, seconds and allocator retries by step."""

import time

from .phases import Phases
from .rest import Rest

#: Steps more that are waited for an optimizer that has stepped before.
PATIENCE = 32


class Record:
    """`skip`: optimizer steps to let pass first, since batches of the size before are still on their way. `holdings`:
    tells what stays in memory from step to step. `vary`: every other step has other samples than the longest, since
    lengths that change are what a caching allocator's memory falls to pieces over; those steps come on top."""

    def __init__(self, meter, steps, skip=0, phases=None, holdings=None, vary=False):
        self._meter = meter
        self._holdings = holdings
        self._vary = vary
        self.wanted = 2 * steps if vary else steps
        self.skip = skip
        self.phases = phases or Phases(meter)
        self.seconds = []
        self._rest = Rest(meter)
        self._clock = None
        self._retries = None

    def start_clock(self):
        if self._clock is None:
            self._meter.synchronize()
            self._clock = time.perf_counter()

    def step_done(self):
        self._meter.synchronize()
        now = time.perf_counter()
        if self._clock is not None:
            self.seconds.append(now - self._clock)
        self._clock = now
        self._rest.step_done()
        if self.skip > 0:
            self.skip -= 1
            self.seconds = []
            self.phases.clear()
            self._rest.clear()
        elif self._retries is None:
            # The first step may retry while the cache finds its shape; later ones are the steady state.
            self._retries = self._meter.retries()

    @property
    def steps(self):
        return len(self.seconds)

    def gradients_are_made(self):
        """Looked at in the first step only: it is not one whose seconds count."""
        if self._holdings is not None and not self.seconds:
            self._holdings.see_gradients()

    def turn(self):
        """Which step this is, if it is one for other samples; else None."""
        step = len(self.seconds)
        return step if self._vary and step % 2 == 1 else None

    def extend(self, steps):
        """Goes on where it was. The wait for the worker is nobody's step."""
        self.wanted += steps
        self._clock = None

    def complete(self, optimizers):
        """Enough steps, and of each optimizer at least one: a generator's may come once in five of its critic's."""
        done = len(self.seconds)
        if done < self.wanted:
            return False
        if optimizers.awaited() and done < self.wanted + PATIENCE:
            return False
        optimizers.give_up()
        return True

    def report(self):
        message = self.phases.report()
        if self._holdings is not None:
            message.update(self._holdings.report())
        message["steps"] = len(self.seconds)
        # Steps of shorter samples are faster: they tell nothing of the size.
        timed = self.seconds[::2] if self._vary else self.seconds
        message["step_s"] = [round(seconds, 6) for seconds in timed]
        message["alloc_retries"] = self._meter.retries() - (self._retries or 0)
        # Where lengths change from step to step no allocator comes to rest.
        message["quiet_steps"] = None if self._vary else self._rest.quiet_steps()
        message["creep_bytes_per_step"] = None if self._vary else self._rest.creep()
        return message
