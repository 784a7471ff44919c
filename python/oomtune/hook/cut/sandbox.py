"""Sets a module up for a rehearsal: without randomness, and leaving no trace."""

import contextlib

from .buffers import Snapshot
from .draws import Draws


class Stage:
    def __init__(self, torch, module, devices):
        self._torch = torch
        self._modules = list(module.modules())
        self._devices = devices

    @contextlib.contextmanager
    def set(self, evaluation, precise):
        """Random numbers, buffers and modes are afterwards as they were. `evaluation`: all modules are as for evaluation,
        else only those that draw or take statistics; `precise`: without autocast and TF32."""
        torch = self._torch
        draws = Draws(torch, self._devices)
        buffers = Snapshot([(module, name) for module in self._modules for name in module._buffers])
        modes = [(module, module.training) for module in self._modules]
        compiled = [(module, getattr(module, "_compiled_call_impl", None)) for module in self._modules]
        compiled = [(module, call) for module, call in compiled if call is not None]
        quiet = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
        try:
            for module, _ in compiled:
                module._compiled_call_impl = None  # nothing is compiled anew for two samples
            for module in self._modules:
                if evaluation or isinstance(module, quiet):
                    module.training = False
            with contextlib.ExitStack() as stack:
                if precise:
                    for kind in ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",):
                        stack.enter_context(torch.autocast(kind, enabled=False))
                    stack.enter_context(_full_precision(torch))
                yield draws
        finally:
            for module, training in modes:
                module.training = training
            for module, call in compiled:
                module._compiled_call_impl = call
            buffers.restore()
            draws.restore()
            torch.clear_autocast_cache()  # what was cast without gradients has none


    def let_go(self):
        """Weights that torch's older weight and spectral normalisation make of others before each forward pass."""
        for module in self._modules:
            for hook in module._forward_pre_hooks.values():
                if type(hook).__name__ in ("SpectralNorm", "WeightNorm"):
                    weight = getattr(module, hook.name)
                    setattr(module, hook.name, weight.detach())


@contextlib.contextmanager
def _full_precision(torch):
    places = [torch.backends.cudnn, torch.backends.cuda.matmul] if torch.cuda.is_available() else []
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = False
        yield
    finally:
        for place, value in zip(places, before):
            place.allow_tf32 = value
