"""Patches torch as soon as it has been imported, before the script can take names from it."""

from __future__ import annotations

import functools
import importlib

from .apply.apply_controller import ApplyController
from .apply.checkpoint_end import CheckpointEnd
from .apply.first_passes import FirstPasses
from .apply.gradient_accumulator import GradientAccumulator, patch_step_calls
from .apply.precision import watch_autocast
from .apply.rung import Rung
from .cut import Cut
from .probe.artifact_guard import guard_saves
from .probe.first_steps import FirstSteps
from .probe.measure_controller import MeasureController
from .probe.probe_controller import ProbeController
from .report.telemetry import Telemetry, watch_saves
from .report.training_loop import DIFFERENCES, warnings
from .watch.backward_passes import BackwardPasses
from .watch.existing import set_apart
from .watch.loader import patch_loader
from .watch.memory import device_memory
from .watch.models import Modules, TrainingMode
from .watch.optimizers import Optimizers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .estimate.ledger import CardLedger
    from .hook import Hook
    from .types import Controller, Memory, Optimizer, ProcessState, Torch


def instrument(hook: Hook, torch: Torch) -> None:
    for name in ("torch.optim.swa_utils", "torch.utils.data"):  # `import torch` loads these in every known version
        importlib.import_module(name)

    hook.instrumentation = Instrumentation(hook, torch)
    if hook.settings.estimate:
        from .estimate.card import NoEstimate, install

        try:
            hook.instrumentation.card = install(hook.settings.estimate, torch)
        except NoEstimate as reason:
            hook.connection.open()
            hook.stop_unsuitable(str(reason))
    hook.instrumentation.install()


class Instrumentation:
    """Makes, connects and installs the parts of the hook that need torch."""

    def __init__(self, hook: Hook, torch: Torch) -> None:
        settings = hook.settings
        self.hook = hook
        self.torch = torch
        #: False in a forked child, which only inherits the patches.
        self.active = True
        #: None until a loop begins: the script chooses its device.
        self.memory: Memory | None = None
        #: Counts what the script holds on a card that is not there; None: it trains on what is there.
        self.card: CardLedger | None = None
        #: The script made a loss with reduction='sum'.
        self.sum_loss = False
        #: Looks at the training's first forward passes; None: nothing has to know what they draw and move.
        self._passes: FirstPasses | None = None
        #: Whether batch normalisation is frozen is to be looked at once more, after a step: train() may be called after the loop has begun.
        self._looks_at_batch_norm = False
        #: The script has turned on autocast itself.
        self.own_amp = False
        self.accumulator = GradientAccumulator()
        self.optimizers = Optimizers(torch, self.accumulator, self)
        self.training_mode = TrainingMode(torch, self.optimizers)
        self.modules = Modules(torch, self.optimizers)
        self.backward = BackwardPasses(torch, self._backward_begins)
        self.rung = Rung(torch, self.modules, self.optimizers, self.backward, self._recomputes, hook)
        if settings.rung_of(settings.knobs).optimizer_on_host:
            # A checkpoint is loaded before training begins, and its whole state may not fit the device.
            self.optimizers.made_one = self.rung.optimizer_on_host.adopt
        self.telemetry = Telemetry(self)
        self.checkpoint_end = CheckpointEnd(hook, torch, self.optimizers)
        self.cut = Cut(torch, self.optimizers, hook.stop_uncut, self.telemetry.warn, lambda: self.backward.plain)
        #: Of a job whose configuration is not recorded yet; None: nothing is to be measured.
        self.first_steps = FirstSteps(self) if settings.watched else None
        self.controller: Controller
        if settings.probing:
            self.controller = ProbeController(self)
        else:
            self.controller = MeasureController(self) if settings.searching else self._for_the_job()

    def install(self) -> None:
        hook, torch, settings = self.hook, self.torch, self.hook.settings
        self.optimizers.install()
        self.training_mode.install()
        if settings.searching or settings.knobs or settings.accumulation > settings.own_accumulation:
            # A job that runs unchanged is only watched.
            self._change_steps()
            self.backward.install()
        if self.first_steps is not None:
            self.first_steps.install()
            self.backward.install()
        if settings.rehearses and not settings.knobs:
            self.backward.install()
        if hook.artifact_guard is not None:
            guard_saves(torch, hook.artifact_guard)
        if settings.searching:
            self._watch_search()
        else:
            watch_saves(torch, hook, self.telemetry, self.checkpoint_end.saved)
        patch_loader(self, torch.utils.data.DataLoader)
        if hook.fork_point is not None:
            hook.fork_point.install(torch)

    def _for_the_job(self) -> Controller:
        if not self.hook.settings.rehearses:
            return ApplyController(self)
        from .rehearsal.rehearsal_controller import RehearsalController

        return RehearsalController(self)

    def _change_steps(self) -> None:
        hook, settings = self.hook, self.hook.settings
        self.cut.install(self.rung.chunked_loss)
        patch_step_calls(self.torch, self.accumulator, self.optimizers, lambda: settings.searching and hook.controlled)
        self._watch_losses()

    def _watch_search(self) -> None:
        # Garbage collections skip what the import made: going through it takes as long as a step.
        set_apart()
        # Checkpointing restores autocast in the backward pass: that is not the script's own.
        watch_autocast(self.torch, lambda: self.rung.autocast.inside or self._unwinds(), self._saw_own_amp)

    def begin_search(self) -> None:
        """In the spare of a job that runs as it stands."""
        if self.first_steps is not None:
            self.first_steps.retire()
            self.first_steps = None
        self._change_steps()
        self._watch_search()
        self.controller = ProbeController(self)

    def why_unseen(self) -> str | None:
        """Why no size could be set in a script that has ended and trained; None: it was not so."""
        return self.controller.why_unseen() if isinstance(self.controller, ProbeController) else None

    def deactivate(self) -> None:
        self.active = False
        self.accumulator.release()
        self.cut.release()
        self.optimizers.active = False
        self.backward.active = False

    def device_memory(self) -> Memory:
        """The memory of the device that this process uses."""
        if self.card is None:
            return device_memory(self.torch)
        from .estimate.memory import CardMemory

        return CardMemory(self.card)

    def state(self) -> ProcessState:
        return {
            "phase": self.hook.phase,
            "refused": self.memory is not None and self.memory.ledger.refused() > 0,
            "micro_batch": self.controller.micro_batch if self.active else None,
            "trains": self.training_mode.is_trained_module,
            "ended": self.telemetry.loop_end.had_ended,
            "stepped": self.telemetry.steps > 0,
            "growing_variable": self.telemetry.growing_variable,
            "waited_for_loader": self.hook.waited_for_loader,
            "without_optimizer": not self.optimizers.exist(),
            "cut_calls": self.cut.cut_calls(),
            "end_loop": self.hook.report_loop_end if self.hook.controlled and self._is_beyond_end() else None,
        }

    def _is_beyond_end(self) -> bool:
        return isinstance(self.controller, ProbeController) and self.controller.beyond_end

    def apply_rung(self) -> None:
        settings = self.hook.settings
        asked = settings.knobs - self.hook.native
        wanted = settings.rung_of(asked)
        if wanted.any:
            self.rung.switch(wanted)

    def warn_of_differences(self) -> None:
        for code in warnings(self, None):
            self.telemetry.warn(code, DIFFERENCES[code])
        self._looks_at_batch_norm = True
        # The cut at the model sees for itself what its micro-batches draw and move.
        if self.hook.cut_choice()[0] != "model":
            self._watch_passes()

    def warn_of_micro_batches(self) -> None:
        """Called where a framework or the script's flags make the micro-batches: these weigh losses by themselves, but batch
        normalisation sees micro-batches there as well."""
        self._warn_of_batch_norm(as_it_is=False)
        self._looks_at_batch_norm = True
        self._watch_passes()

    def _warn_of_batch_norm(self, as_it_is: bool) -> None:
        if self.modules.normalises_by_batch(as_it_is):
            self.telemetry.warn("batch_norm", DIFFERENCES["batch_norm"])

    def _watch_passes(self) -> None:
        # A compiled model would be compiled anew for a look into it.
        if self._passes is None and not self.modules.compiled():
            self._passes = FirstPasses(self.torch, self.telemetry.warn)
            self.rung.watch_passes(self._passes)

    # -- called by the watchers of optimizers and backward passes

    def before_step(self, optimizer: Optimizer | None) -> None:
        if self.active:
            self.controller.before_step()

    def after_step(self, optimizer: Optimizer) -> None:
        if self.active:
            self.controller.after_step()
            if self._looks_at_batch_norm:
                self._looks_at_batch_norm = False
                self._warn_of_batch_norm(as_it_is=True)

    def before_closure(self) -> None:
        if self.active:
            self.controller.before_closure()

    def _backward_begins(self) -> float:
        if self.active:
            self.optimizers.exist()  # looks for one of another kind, before its first step
            self.controller.before_backward()
        return self.accumulator.backward()

    def _unwinds(self) -> bool:
        """Whether a backward pass runs: the script's, or that of a micro-batch of a cut call."""
        return self.backward.running or self.cut.in_backward

    def _recomputes(self) -> bool:
        """Whether a checkpoint recomputes a part of a forward pass. (The cut recomputes too, with all knobs on.)"""
        return self._unwinds() and not self.cut.in_micro_batch

    def _saw_own_amp(self) -> None:
        self.own_amp = True

    def _watch_losses(self) -> None:
        """Notes losses that sum: weighting the micro-batches' sums does not give the sum of the whole batch."""
        kind = self.torch.nn.modules.loss._Loss
        original = kind.__init__
        instrumentation = self

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if getattr(self, "reduction", None) == "sum":
                instrumentation.sum_loss = True

        kind.__init__ = __init__
