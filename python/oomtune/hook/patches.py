"""Puts the hook's parts into torch, at the moment it has been imported and before the script can take names from it."""

from .backward import Backward
from .driver import Driver
from .gate import Gate
from .loader import patch_loader
from .modules import Modules
from .optimizer import Optimizers
from .rung import Rung
from .saving import quiet_saves
from .training import Training


def patch_torch(hook, torch):
    import torch.utils.data  # part of `import torch` in every version known; harmless where it is

    hook.gate = Gate()
    hook.optimizers = Optimizers(torch, hook.gate, hook)
    hook.training = Training(torch, hook.optimizers)
    hook.modules = Modules(torch, hook.optimizers)
    hook.backward = Backward(torch, hook.backward_begins)
    hook.rung = Rung(torch, hook)
    hook.sum_loss = False
    hook.optimizers.install()
    hook.training.install()
    if hook.settings.mode == "probe":
        hook.backward.install()
        hook.guide = Driver(hook)
        patch_loader(torch, hook.guide)
        quiet_saves(torch, lambda: hook.driving)
