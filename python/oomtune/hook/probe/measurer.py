"""Measures a script that brings its own batch size (flags, a configuration file): its batches are left as they are.

After the steps asked for it waits for the worker, which mostly ends the process. Where the batches come from a plain
DataLoader after all, the worker may go on with other sizes in the same process: then this is a Driver.
"""

from __future__ import annotations

import weakref

from ..report.training_loop import describe
from ..watch.loader import own_batch
from ..watch.memory import find_memory
from .driver import Driver
from .measurement import Measurement
from .phases import FORWARD_BACKWARD, Phases
from .samples import Unsuitable
from .trial import ProbeRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instruments import Instruments
    from ..types import Loader
    from ..watch.loader import LoopIterator
    from .samples import Source


class Measurer(Driver):
    def __init__(self, instruments: Instruments) -> None:
        super().__init__(instruments)
        self._by_step = True
        self._measured: weakref.ref[Loader] | None = None
        self._own_batch: int | None = None

    def keeps_out(self, iterator: LoopIterator) -> bool:
        if self._measured is not None and self._measured() is iterator.loader:
            return self.state == "released"
        return super().keeps_out(iterator)

    def next(self, iterator: LoopIterator) -> Any:
        if self.state in ("waiting", "measuring"):
            return self._pass_on(iterator)
        return super().next(iterator)

    def begins_at_call(self) -> bool:
        return False

    def before_step(self) -> None:
        if self.state == "waiting":
            # No DataLoader: the first sign of a training loop is its optimizer.
            self._begin_measuring(None)
            self.trial.running.start_clock()
        super().before_step()

    def after_step(self) -> None:
        super().after_step()
        if self.state == "measuring" and self._by_step:
            self._gate.own_accumulation = max(1, self._rounds.backwards)
            self._new_step()
            self.trial.running.step_done()
            if self.trial.complete:
                self._finish()
            self.trial.enter(FORWARD_BACKWARD)

    def _pass_on(self, iterator: LoopIterator) -> Any:
        if self.state == "waiting":
            self._begin_measuring(iterator)
        self._by_step = False
        self._asked(iterator)
        if self.trial.complete:
            self._finish()
            if self.state == "driving":
                self._settle()
                return self._hand(iterator)
        batch = iterator.next_real()
        if self.trial.measurement is not None and self._pace.sets(iterator.loader):
            self.trial.passed_on()
            self._handed()
        return batch

    def _look(self, iterator: LoopIterator) -> Source | None:
        """A source of other sizes, if the loader's batch is what the worker filled in."""
        if own_batch(iterator.loader) != self._hook.settings.micro_batch:
            return None
        try:
            return self._feed.source(iterator)
        except Unsuitable:
            return None

    @property
    def _called_with(self) -> int | None:
        """Rows that the model is called with, if they are what the worker filled in: other sizes can be set there."""
        call = self._at_call
        return call.rows if call.suitable and call.rows == self._hook.settings.micro_batch else None

    def _begin_measuring(self, iterator: LoopIterator | None) -> None:
        hook, trial = self._hook, self.trial
        trial.memory = self._instruments.memory = find_memory(self._torch)
        if not hook.link.open():
            hook.leave(75)
        loader = None if iterator is None else iterator.loader
        if iterator is None:
            self._at_call.rest()
            hook.by_hand = self._called_with is not None
            hook.link.send(describe(self._instruments, None, None, self._called_with))
        else:
            self._at_call.release()
            hook.link.send(describe(self._instruments, loader, self._look(iterator)))
        self._measured = None if loader is None else weakref.ref(loader)
        self._own_batch = None if loader is None else own_batch(loader)
        self.state = "measuring"
        hook.driving = True
        hook.phase = "train"
        # What was allocated before the first step counts for it where there is no batch to begin with.
        phases = Phases(trial.memory, FORWARD_BACKWARD, reset=False) if iterator is None else None
        trial.measurement = Measurement(trial.memory, trial.breakdown(), hook.settings.steps, phases=phases)

    def _asked_for(self) -> None:
        settings = self._hook.settings
        self.trial.probe = ProbeRequest(
            settings.micro_batch or self._own_batch or 1,
            settings.accumulation,
            settings.amp,
            settings.checkpointing,
            settings.offload,
            settings.steps,
        )

    def _finish(self) -> None:
        self._asked_for()
        self._hook.link.send(self.trial.measured())
        answer = self._hook.link.receive()
        if answer is None or answer.get("t") != "more":
            self.state = "driving"
            if self._by_step and self._called_with is not None:
                self._begin_at_call()
        self._take(answer)

    def _check_bounds(self, iterator: LoopIterator) -> None:
        if self.state == "driving":
            super()._check_bounds(iterator)

    @property
    def micro_batch(self) -> int | None:
        return super().micro_batch or self._hook.settings.micro_batch
