"""What the hook puts into torch, at the moment it has been imported and before the script can take names from it."""

from __future__ import annotations

import functools
import gc
import importlib

from .apply.applier import Applier
from .apply.gate import Gate, gate_calls
from .apply.precision import watch_autocast
from .apply.rung import Rung
from .cut import Cut
from .probe.driver import Driver
from .probe.measurer import Measurer
from .probe.quiet import quiet_saves
from .report.telemetry import Telemetry, tell_saves
from .report.training_loop import DIFFERENCES, warnings
from .watch.backward import Backward
from .watch.loader import patch_loader
from .watch.models import Modules, Training
from .watch.optimizers import Optimizers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .hook import Hook
    from .types import Controller, Memory, Optimizer, ProcessState, Torch


def instrument(hook: Hook, torch: Torch) -> None:
    for name in ("torch.optim.swa_utils", "torch.utils.data"):  # parts of `import torch` in every version known
        importlib.import_module(name)

    hook.instruments = Instruments(hook, torch)
    hook.instruments.install()


class Instruments:
    """One object that holds the parts together which need torch."""

    def __init__(self, hook: Hook, torch: Torch) -> None:
        settings = hook.settings
        self.hook = hook
        self.torch = torch
        #: False in a forked child, which only inherits what was patched.
        self.active = True
        #: Known when a loop begins: the script chooses its device.
        self.memory: Memory | None = None
        #: A loss that sums was made.
        self.sum_loss = False
        #: The script's own autocast was on at some time.
        self.own_amp = False
        self.gate = Gate()
        self.optimizers = Optimizers(torch, self.gate, self)
        self.training = Training(torch, self.optimizers)
        self.modules = Modules(torch, self.optimizers)
        self.backward = Backward(torch, self._backward_begins)
        self.rung = Rung(torch, self.modules, self.optimizers, self.backward, self._recomputes)
        self.telemetry = Telemetry(self)
        self.cut = Cut(torch, self.optimizers, hook.uncut, self.telemetry.warn, lambda: self.backward.plain)
        self.controller: Controller
        if settings.drives:
            self.controller = Driver(self)
        else:
            self.controller = Measurer(self) if settings.searching else Applier(self)

    def install(self) -> None:
        hook, torch, settings = self.hook, self.torch, self.hook.settings
        self.optimizers.install()
        self.training.install()
        if settings.searching or settings.knobs:
            # A job that runs as it stands is only watched: none of this is in its way.
            self.cut.install()
            self.backward.install()
            gate_calls(torch, self.gate, self.optimizers, lambda: settings.searching and hook.driving)
            self._watch_losses()
        if hook.result_files is not None:
            # What the import left stays: to look through all of it for garbage, before the first size, takes as long as a step.
            gc.freeze()
            # Checkpointing restores autocast in the backward pass: that is nobody's own.
            watch_autocast(torch, lambda: self.rung.autocast.inside or self._unwinds(), self._saw_own_amp)
            quiet_saves(torch, hook.result_files)
        else:
            tell_saves(torch, hook, self.telemetry)
        patch_loader(torch, torch.utils.data.DataLoader, self.controller, eager=not settings.drives)
        if hook.lives is not None:
            hook.lives.install(torch)

    def deactivate(self) -> None:
        self.active = False
        self.gate.release()
        self.cut.release()
        self.optimizers.active = False
        self.backward.active = False

    def state(self) -> ProcessState:
        return {
            "phase": self.hook.phase,
            "refused": self.memory is not None and self.memory.ledger.refused() > 0,
            "micro_batch": self.controller.micro_batch if self.active else None,
            "trains": self.training.switches,
            "ended": self.telemetry.loop_end.passed,
            "keeper": self.telemetry.keeper,
        }

    def apply_rung(self) -> None:
        settings = self.hook.settings
        asked = settings.knobs - self.hook.native
        amp = settings.amp if "amp" in asked else "off"
        checkpointing = settings.checkpointing and "checkpointing" in asked
        offload = settings.offload and "offload" in asked
        if amp != "off" or checkpointing or offload:
            self.rung.switch(amp, checkpointing, offload)

    def warn_of_differences(self) -> None:
        for code in warnings(self, None):
            self.telemetry.warn(code, DIFFERENCES[code])

    # -- what the watchers of optimizers and backward passes tell

    def before_step(self, optimizer: Optimizer | None) -> None:
        if self.active:
            self.controller.before_step()

    def after_step(self, optimizer: Optimizer) -> None:
        if self.active:
            self.controller.after_step()

    def forward_backward_again(self) -> None:
        if self.active:
            self.controller.forward_backward_again()

    def _backward_begins(self) -> float:
        if self.active:
            self.controller.backward()
        return self.gate.backward()

    def _unwinds(self) -> bool:
        """A backward pass runs, the script's or that of a part of a cut call."""
        return self.backward.running or self.cut.in_backward

    def _recomputes(self) -> bool:
        """A checkpoint makes a part of a forward pass again (the cut does so, too, and all knobs are on then)."""
        return self._unwinds() and not self.cut.in_micro_batch

    def _saw_own_amp(self) -> None:
        self.own_amp = True

    def _watch_losses(self) -> None:
        """Sums do not become the sum of the whole batch by weighing the parts: the worker has to be told."""
        kind = self.torch.nn.modules.loss._Loss
        original = kind.__init__
        instruments = self

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if getattr(self, "reduction", None) == "sum":
                instruments.sum_loss = True

        kind.__init__ = __init__
