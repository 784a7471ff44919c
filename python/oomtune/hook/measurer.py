"""Measures a script that brings its own batch size (flags, a configuration file): its batches are left as they are.

After the steps asked for it waits for the worker, which mostly ends the process. Where the batches come from a plain
DataLoader after all, the worker may go on with other sizes in the same process: then this is a Driver.
"""

import weakref

from . import samples
from .driver import Driver
from .meter import find_meter
from .phases import FORWARD_BACKWARD, Phases
from .record import Record
from .trial import Probe


class Measurer(Driver):
    def __init__(self, hook):
        super().__init__(hook)
        self._by_step = True
        self._measured = None
        self._own_batch = None

    def keeps_out(self, port):
        if self._measured is not None and self._measured() is port.loader:
            return self.state == "released"
        return super().keeps_out(port)

    def next(self, port):
        if self.state in ("waiting", "measuring"):
            return self._pass_on(port)
        return super().next(port)

    def before_step(self):
        if self.state == "waiting":
            # No DataLoader: the first sign of a training loop is its optimizer.
            self._begin_measuring(None)
            self.trial.record.start_clock()
        super().before_step()

    def after_step(self):
        super().after_step()
        if self.state == "measuring" and self._by_step:
            self._gate.own_accumulation = max(1, self._rounds.backwards)
            self._new_step()
            self.trial.record.step_done()
            if self.trial.complete:
                self._finish()
            self.trial.enter(FORWARD_BACKWARD)

    def _pass_on(self, port):
        if self.state == "waiting":
            self._begin_measuring(port)
        self._by_step = False
        self._asked(port)
        if self.trial.complete:
            self._finish()
            if self.state == "driving":
                self._settle()
                return self._hand(port)
        batch = port.next_real()
        if self.trial.record is not None and self._pace.sets(port.loader):
            self.trial.passed_on()
            self._handed()
        return batch

    def _look(self, port):
        """A source of other sizes, if the loader's batch is what the worker filled in."""
        if samples.own_batch(port.loader) != self._hook.settings.micro_batch:
            return None
        try:
            return self._feed.source(port)
        except samples.Unsuitable:
            return None

    def _begin_measuring(self, port):
        hook, trial = self._hook, self.trial
        trial.meter = hook.meter = find_meter(self._torch)
        if not hook.link.open():
            hook.leave(75)
        loader = None if port is None else port.loader
        hook.link.send(hook.describe_loop(loader, None if port is None else self._look(port)))
        self._measured = None if loader is None else weakref.ref(loader)
        self._own_batch = None if loader is None else samples.own_batch(loader)
        self.state = "measuring"
        hook.driving = True
        hook.phase = "train"
        # What was allocated before the first step counts for it where there is no batch to begin with.
        phases = Phases(trial.meter, FORWARD_BACKWARD, reset=False) if port is None else None
        trial.record = Record(trial.meter, hook.settings.steps, phases=phases, holdings=trial.holdings())

    def _asked_for(self):
        settings = self._hook.settings
        self.trial.probe = Probe(
            settings.micro_batch or self._own_batch or 1,
            settings.accumulation,
            settings.amp,
            settings.checkpointing,
            settings.offload,
            settings.steps,
        )

    def _finish(self):
        self._asked_for()
        self._hook.link.send(self.trial.measured())
        answer = self._hook.link.receive()
        if answer is None or answer.get("t") != "more":
            self.state = "driving"
        self._take(answer)

    def _check_bounds(self, port):
        if self.state == "driving":
            super()._check_bounds(port)

    @property
    def micro_batch(self):
        return super().micro_batch or self._hook.settings.micro_batch
