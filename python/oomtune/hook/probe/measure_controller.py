"""Measures a script whose batch size is set by a flag or a configuration file: its batches stay as they are.

After the requested steps it waits for the worker, which mostly ends the process. If the batches come from a plain DataLoader
after all, the worker may go on with other sizes in the same process: then this acts as a ProbeController.
"""

from __future__ import annotations

import weakref

from ..apply.pending_rung import PendingRung
from ..report.training_loop import describe
from ..watch.loader import own_batch
from .batch_factory import UnsuitableLoader
from .probe import ProbeRequest
from .probe_controller import ProbeController
from .step_phases import FORWARD_BACKWARD, StepPhases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..types import Loader
    from ..watch.loader import LoaderIterator
    from .batch_factory import BatchFactory


class MeasureController(ProbeController):
    def __init__(self, instrumentation: Instrumentation) -> None:
        super().__init__(instrumentation)
        self._by_step = True
        self._measured: weakref.ref[Loader] | None = None
        self._own_batch: int | None = None
        #: What the command's own words do not carry is measured with it on.
        self._rung = PendingRung(instrumentation)
        if self._hook.settings.own_batches:
            # Looking for the samples in the model's call runs the model, and a value near the limit leaves no room for that.
            self._call_resizer.unwatch()

    def keeps_own_batches(self, iterator: LoaderIterator) -> bool:
        if self._measured is not None and self._measured() is iterator.loader:
            return self.state == "released"
        return super().keeps_own_batches(iterator)

    def next(self, iterator: LoaderIterator) -> Any:
        if self.state in ("waiting", "measuring"):
            self.probe.cycled.see(iterator)
            return self._pass_on(iterator)
        return super().next(iterator)

    def starts_at_call(self) -> bool:
        return False

    def before_step(self) -> None:
        if self.state == "waiting":
            # Without a DataLoader the first sign of a training loop is its optimizer's step.
            self._begin_measuring(None)
            self.probe.current.start_clock()
        super().before_step()

    def after_step(self) -> None:
        super().after_step()
        if self.state == "measuring" and self._by_step:
            self._accumulator.own_accumulation = max(1, self._iterations.backwards)
            self._new_step()
            self.probe.current.step_done()
            if self.probe.complete:
                self._finish()
            self.probe.enter(FORWARD_BACKWARD)

    def _pass_on(self, iterator: LoaderIterator) -> Any:
        if self.state == "waiting":
            self._rung.apply()
            self._begin_measuring(iterator)
        self._by_step = False
        self._batch_requested(iterator)
        if self.probe.complete:
            self._finish()
            if self.state == "probing":
                self._await_orders()
                return self._make_batch(iterator)
        self.probe.cycled.hand_out(iterator, own_batch(iterator.loader) or 1, self.probe.memory.device)
        batch = iterator.next_real()
        if self.probe.measurement is not None and self._leading.is_leading(iterator.loader):
            self.probe.batch_passed_on()
            self._batch_handed_out()
        return batch

    def _look(self, iterator: LoaderIterator) -> BatchFactory | None:
        """A factory of other sizes, if the loader's batch size is the one that the worker filled in."""
        settings = self._hook.settings
        if settings.own_batches or own_batch(iterator.loader) != settings.micro_batch:
            return None
        try:
            return self._factories.factory(iterator)
        except UnsuitableLoader:
            return None

    @property
    def _called_with(self) -> int | None:
        """Rows of the model's call, if they are what the worker filled in: then other sizes can be set there."""
        call = self._call_resizer
        return call.rows if call.suitable and call.rows == self._hook.settings.micro_batch else None

    def _begin_measuring(self, iterator: LoaderIterator | None) -> None:
        hook, probe = self._hook, self.probe
        self._connect()
        loader = None if iterator is None else iterator.loader
        if iterator is None:
            self._call_resizer.unwatch()
            hook.loaderless = self._called_with is not None
            hook.connection.send(describe(self._instrumentation, None, None, self._called_with))
        else:
            self._call_resizer.release()
            hook.connection.send(describe(self._instrumentation, loader, self._look(iterator)))
        self._measured = None if loader is None else weakref.ref(loader)
        self._own_batch = None if loader is None else own_batch(loader)
        self.state = "measuring"
        hook.controlled = True
        hook.phase = "train"
        # Without a loader the first batch was made before: what was allocated until now counts for the first step.
        phases = StepPhases(probe.memory, FORWARD_BACKWARD, reset=False) if iterator is None else None
        probe.measure(hook.settings.steps, phases=phases, benchmark=not hook.settings.foretells)

    def _set_request(self) -> None:
        settings = self._hook.settings
        self.probe.request = ProbeRequest(
            settings.micro_batch or self._own_batch or 1,
            settings.accumulation,
            settings.rung,
            settings.steps,
        )

    def _finish(self) -> None:
        self._set_request()
        self._hook.connection.send(self.probe.measured_message())
        answer = self._hook.connection.receive()
        if answer is None or answer.get("t") != "more":
            self.state = "probing"
            if self._by_step and self._called_with is not None:
                self._begin_at_call()
        self._handle(answer)

    def _check_idle(self, iterator: LoaderIterator) -> None:
        if self.state == "probing":
            super()._check_idle(iterator)

    @property
    def micro_batch(self) -> int | None:
        return super().micro_batch or self._hook.settings.micro_batch
