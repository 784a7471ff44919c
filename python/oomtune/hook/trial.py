"""One size on one rung, as the worker asks for it, and what it costs."""

import gc
import math

from .gate import Micro
from .holdings import Holdings
from .keepers import Keepers
from .record import Record

#: Steps after which the variables of a long probe are looked at.
LOOK = 3
#: Micro-batches of a call that are run while it is measured: more hold no other memory.
MOST_PARTS = 8
#: Fields of the worker's message.
ORDERED = ("micro_batch", "accumulation", "amp", "checkpointing", "offload", "steps", "vary", "batch")


class Probe:
    """What the worker asks for."""

    def __init__(
        self,
        micro_batch,
        accumulation=1,
        amp="off",
        checkpointing=False,
        offload=False,
        steps=3,
        vary=False,
        batch=None,
    ):
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
    def asked(cls, message):
        return cls(**{name: message[name] for name in ORDERED if name in message})


class Trial:
    """The probe that is measured now. `meter` is known when the loop begins; `probe` None: nothing was asked for yet."""

    def __init__(self, hook):
        self._hook = hook
        self._gate = hook.gate
        self.meter = None
        self.probe = None
        #: The process has run no other size before.
        self.first = True
        self.record = None
        self._group = 1
        #: Batches handed out, and those that steps were made of as far as these do not follow at once.
        self._handed = self._used = 0
        self._failures = 0
        self._keepers = Keepers(hook.torch)
        #: Steps that the probe had made when the script's variables were looked at; None: they were not.
        self._looked = None

    def begin(self, probe, apart, variable):
        """In this process, after other sizes. `apart`: a thread fetches the batches ahead; `variable`: samples differ in
        length."""
        hook, before = self._hook, self.probe
        self.first = before is None
        self.probe = probe
        hook.rung.switch(probe.amp, probe.checkpointing, probe.offload)
        hook.optimizers.renew()
        gc.collect()
        self.meter.tidy()
        skip = 0
        if before is not None:
            # Batches of the size before are still with the loop: fetched ahead, or bound to its variables.
            ahead = self._handed - self._used if apart else self._gate.ahead
            skip = math.ceil(ahead / self.batches_a_step)
            if before.micro_batch > probe.micro_batch or before.accumulation != probe.accumulation:
                skip = max(1, skip)
        self._failures = self.meter.failures()
        self._looked = None
        # Only a caching allocator minds that lengths change.
        vary = probe.vary and variable and self.meter.reserved() is not None
        self.record = Record(self.meter, probe.steps, skip, holdings=self.holdings(), vary=vary)
        self.set_group()

    def holdings(self):
        return Holdings(self._hook.torch, self._hook.optimizers, self._hook.modules, self.meter.device)

    def enter(self, phase):
        if self.record is not None:
            self.record.phases.enter(phase)

    @property
    def complete(self):
        return self.record.complete(self._hook.optimizers)

    @property
    def batches_a_step(self):
        return self._group * self._gate.own_accumulation

    @property
    def parts(self):
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
    def size(self):
        """Samples of the batches that the loop is handed."""
        return self.probe.micro_batch * self.parts

    def set_group(self):
        """Batches that the hook has to make one step of, beyond those that the script does."""
        wanted = 1 if self.probe is None else self.probe.accumulation
        self._group = 1 if self._gate.own_accumulation > 1 or self.parts > 1 else wanted
        if self.parts > 1 or self._group > 1:
            self._hook.tell_cut()
        if self.parts > 1:
            self._hook.cut.engage(self.probe.micro_batch, self.size, MOST_PARTS)
        else:
            self._hook.cut.release()
        if self._group > 1:
            self._gate.engage()
        else:
            self._gate.release()

    def hand(self):
        """One more batch of the size goes to the loop."""
        place = self._handed % self._group
        self._gate.handed(Micro(self._handed // self._group, place, self._group, 1.0 / self._group))
        self._hook.modules.sync(self._gate.syncs)
        self.passed_on()

    def passed_on(self):
        """One more batch of the script's own."""
        self._handed += 1

    def step_done(self, apart):
        if apart:
            self._used += self.batches_a_step
        self.record.step_done()
        if self.record.steps >= LOOK and self.record.wanted > 2 * LOOK:
            self.look()

    def look(self):
        """Once in a probe, and not in its first steps: to read the variables of a running function may keep some alive."""
        if self._looked is None:
            self._looked = self.record.steps
            self._keepers.look()

    def _keeper(self, growth):
        """The variable that keeps what each step leaves behind; None: nothing is left behind, or it was not seen."""
        if not growth or self._looked is None:
            return None
        return self._keepers.named(self.record.steps - self._looked)

    def refused(self):
        """Whether an allocation has failed since this was asked last."""
        before, self._failures = self._failures, self.meter.failures()
        return self._failures > before

    def measured(self):
        """The message that tells what it cost."""
        probe, report = self.probe, self.record.report()
        return {
            "t": "measured",
            "micro_batch": probe.micro_batch,
            "accumulation": self.batches_a_step * min(self.parts, MOST_PARTS),
            "amp": probe.amp,
            "checkpointing": probe.checkpointing,
            "offload": probe.offload,
            **report,
            "kept_by": self._keeper(report["growth_bytes_per_step"]),
            "own_accumulation": self._gate.own_accumulation,
            "own_amp": self._hook.own_amp(),
        }
