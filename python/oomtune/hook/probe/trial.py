"""One size on one rung, as the worker asks for it, and what it costs."""

from __future__ import annotations

import gc
import math

from ..apply.gate import MicroBatch
from ..watch.growing import GrowingVariables
from .breakdown import MemoryBreakdown
from .measurement import Measurement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instruments import Instruments
    from ..messages import Measured
    from ..types import Memory, Message


#: Steps after which the variables of a long probe are looked at.
LOOK = 3
#: Micro-batches of a call that are run while it is measured: more hold no other memory.
MOST_PARTS = 8
#: Fields of the worker's message.
ORDERED = ("micro_batch", "accumulation", "amp", "checkpointing", "offload", "steps", "vary", "batch")


class ProbeRequest:
    """What the worker asks for."""

    def __init__(
        self,
        micro_batch: int,
        accumulation: int | None = 1,
        amp: str | None = "off",
        checkpointing: bool = False,
        offload: bool = False,
        steps: int | None = 3,
        vary: bool = False,
        batch: int | None = None,
    ) -> None:
        self.micro_batch = max(1, int(micro_batch))
        self.accumulation = max(1, int(accumulation or 1))
        self.amp = amp or "off"
        self.checkpointing = bool(checkpointing)
        self.offload = bool(offload)
        self.steps = max(2, int(steps or 3))
        #: Other samples than the longest have their turn too.
        self.vary = bool(vary)
        #: Samples of the batch that the loop will see; None: not said.
        self.batch = None if batch is None else max(1, int(batch))

    @classmethod
    def asked(cls, message: Message) -> ProbeRequest:
        return cls(**{name: message[name] for name in ORDERED if name in message})


class Trial:
    """The probe that is measured now."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._gate = instruments.gate
        #: Known when the loop begins.
        self.memory: Memory
        #: None: nothing was asked for yet.
        self.probe: ProbeRequest | None = None
        #: The process has run no other size before.
        self.first = True
        self.measurement: Measurement | None = None
        self._group = 1
        #: Batches handed out, and those that steps were made of as far as these do not follow at once.
        self._handed = self._used = 0
        self._failures = 0
        self._growing = GrowingVariables(instruments.torch)
        #: Steps that the probe had made when the script's variables were looked at; None: they were not.
        self._looked = None

    def begin(self, probe: ProbeRequest, apart: bool, variable: bool) -> None:
        """In this process, after other sizes. `apart`: a thread fetches the batches ahead; `variable`: samples differ in
        length."""
        instruments, before = self._instruments, self.probe
        self.first = before is None
        self.probe = probe
        instruments.rung.switch(probe.amp, probe.checkpointing, probe.offload)
        instruments.optimizers.renew()
        gc.collect()
        self.memory.tidy()
        skip = 0
        if before is not None:
            # Batches of the size before are still with the loop: fetched ahead, or bound to its variables.
            ahead = self._handed - self._used if apart else self._gate.ahead
            skip = math.ceil(ahead / self.batches_a_step)
            if before.micro_batch > probe.micro_batch or before.accumulation != probe.accumulation:
                skip = max(1, skip)
        self._failures = self.memory.failures()
        self._looked = None
        # Only a caching allocator minds that lengths change.
        vary = probe.vary and variable and self.memory.reserved() is not None
        self.measurement = Measurement(self.memory, self.breakdown(), probe.steps, skip, vary=vary)
        self.set_group()

    def breakdown(self) -> MemoryBreakdown:
        return MemoryBreakdown(
            self._instruments.torch, self._instruments.optimizers, self._instruments.modules, self.memory.device
        )

    @property
    def running(self) -> Measurement:
        """The measurement, where there is one."""
        assert self.measurement is not None
        return self.measurement

    def enter(self, phase: str) -> None:
        if self.measurement is not None:
            self.measurement.phases.enter(phase)

    @property
    def complete(self) -> bool:
        return self.running.complete(self._instruments.optimizers)

    @property
    def batches_a_step(self) -> int:
        return self._group * self._gate.own_accumulation

    @property
    def parts(self) -> int:
        """Micro-batches of each of the loop's batches: they are cut where the model is called; 1: they are not."""
        probe = self.probe
        if (
            probe is None
            or probe.accumulation == 1
            or not self._hook.settings.drives
            or self._hook.cut_choice()[0] != "model"
        ):
            return 1
        return max(probe.accumulation, -(-(probe.batch or 0) // probe.micro_batch))

    @property
    def size(self) -> int:
        """Samples of the batches that the loop is handed."""
        return 1 if self.probe is None else self.probe.micro_batch * self.parts

    def set_group(self) -> None:
        """Batches that the hook has to make one step of, beyond those that the script does."""
        wanted = 1 if self.probe is None else self.probe.accumulation
        self._group = 1 if self._gate.own_accumulation > 1 or self.parts > 1 else wanted
        if self.parts > 1 or self._group > 1:
            self._hook.tell_cut()
        if self.probe is not None and self.parts > 1:
            self._instruments.cut.engage(self.probe.micro_batch, self.size, MOST_PARTS)
        else:
            self._instruments.cut.release()
        if self._group > 1:
            self._gate.engage()
        else:
            self._gate.release()

    def hand(self) -> None:
        """One more batch of the size goes to the loop."""
        place = self._handed % self._group
        self._gate.handed(MicroBatch(self._handed // self._group, place, self._group, 1.0 / self._group))
        self._instruments.modules.sync(self._gate.syncs)
        self.passed_on()

    def passed_on(self) -> None:
        """One more batch of the script's own."""
        self._handed += 1

    def step_done(self, apart: bool) -> None:
        if apart:
            self._used += self.batches_a_step
        measurement = self.running
        measurement.step_done()
        if measurement.steps >= LOOK and measurement.wanted > 2 * LOOK:
            self.look()

    def look(self) -> None:
        """Once in a probe, and not in its first steps: to read the variables of a running function may keep some alive."""
        if self._looked is None:
            self._looked = self.running.steps
            self._growing.look()

    def _keeper(self, growth: float | None) -> str | None:
        """The variable that keeps what each step leaves behind; None: nothing is left behind, or it was not seen."""
        if not growth or self._looked is None:
            return None
        return self._growing.named(self.running.steps - self._looked)

    def refused(self) -> Any:
        """Whether an allocation has failed since this was asked last."""
        before, self._failures = self._failures, self.memory.failures()
        return self._failures > before

    def measured(self) -> Measured:
        """The message that tells what it cost."""
        probe, report = self.probe, self.running.report()
        assert probe is not None
        return {
            "t": "measured",
            "micro_batch": probe.micro_batch,
            "accumulation": self.batches_a_step * min(self.parts, MOST_PARTS),
            **report,
            "kept_by": self._keeper(report["growth_bytes_per_step"]),
            "own_accumulation": self._gate.own_accumulation,
            "own_amp": self._instruments.own_amp,
        }
