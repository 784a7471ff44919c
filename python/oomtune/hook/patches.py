"""Puts the hook's parts into torch, at the moment it has been imported and before the script can take names from it."""

import functools
import gc

from .applier import Applier
from .autocast import watch_autocast
from .backward import Backward
from .cut import Cut
from .driver import Driver
from .early import Early
from .gate import Gate
from .gates import gate_calls
from .loader import patch_loader
from .measurer import Measurer
from .modules import Modules
from .optimizer import Optimizers
from .rung import Rung
from .saving import quiet_saves, tell_saves
from .telemetry import Telemetry
from .training import Training


def patch_torch(hook, torch):
    import torch.optim.swa_utils
    import torch.utils.data  # part of `import torch` in every version known

    settings = hook.settings
    hook.torch = torch
    hook.gate = Gate()
    hook.optimizers = Optimizers(torch, hook.gate, hook)
    hook.training = Training(torch, hook.optimizers)
    hook.modules = Modules(torch, hook.optimizers)
    hook.backward = Backward(torch, hook.backward_begins)
    hook.rung = Rung(torch, hook.modules, hook.optimizers, hook.backward, hook.recomputes)
    hook.telemetry = Telemetry(hook)
    hook.optimizers.install()
    hook.training.install()
    if settings.searching or settings.knobs:
        # A job that runs as it stands is only watched: none of this is in its way.
        hook.cut = Cut(torch, hook.optimizers, hook.uncut, hook.telemetry.warn, lambda: hook.backward.plain)
        hook.cut.install()
        hook.backward.install()
        gate_calls(torch, hook.gate, hook.optimizers, lambda: settings.searching and hook.driving)
        _watch_losses(hook, torch)
    if settings.searching:
        # What the import left stays: to look through all of it for garbage, before the first size, takes as long as a step.
        gc.freeze()
        # Checkpointing restores autocast in the backward pass: that is nobody's own.
        ours = lambda: hook.rung.autocast.inside or hook.unwinds()  # noqa: E731
        watch_autocast(torch, ours, hook.saw_own_amp)
        quiet_saves(torch, hook.results)
        hook.guide = Driver(hook) if settings.drives else Measurer(hook)
    else:
        tell_saves(torch, hook)
        hook.early = Early(hook)
        hook.early.install(torch.utils.data.DataLoader)
        hook.guide = Applier(hook)
    patch_loader(torch, torch.utils.data.DataLoader, hook.guide, eager=not settings.drives)


def _watch_losses(hook, torch):
    """Sums do not become the sum of the whole batch by weighing the parts: the worker has to be told."""
    kind = torch.nn.modules.loss._Loss
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if getattr(self, "reduction", None) == "sum":
            hook.sum_loss = True

    kind.__init__ = __init__
