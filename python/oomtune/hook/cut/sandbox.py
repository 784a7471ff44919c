"""Runs a module without side effects: restores random state, buffers, modes and attributes afterwards."""

from __future__ import annotations

import contextlib

from ..watch.rng_state import RngState
from .attributes import Attributes
from .autocast import device_types
from .buffers import Snapshot, buffer_keys, learning_buffers
from .hook_variables import hook_variables
from .lazy_layers import unmade
from .written_weights import Weights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Module, Tensor, Torch


class Sandbox:
    """`devices`: the CUDA devices whose random state is restored; `sharded`: the weights are shared between ranks, whose modules
    note in their attributes what they have gathered."""

    def __init__(self, torch: Torch, module: Module, devices: list[int], sharded: bool = False) -> None:
        self._torch = torch
        self._modules = list(module.modules())
        self._devices = devices
        self._sharded = sharded

    @property
    def has_bags(self) -> bool:
        return any(isinstance(each, self._torch.nn.EmbeddingBag) for each in self._modules)

    def attributes(self) -> Attributes:
        """What the modules keep, and what the hooks on them do."""
        modules = [] if self._sharded else self._modules
        return Attributes(self._torch, modules, hook_variables(self._torch, modules))

    def random(self) -> RngState:
        return RngState(self._torch, self._devices)

    def seeded(self, seed: int) -> RngState:
        """To be called when it is entered: another random state, of the generators alone that are restored afterwards."""
        self._torch.default_generator.manual_seed(seed)
        for device in self._devices:
            self._torch.cuda.default_generators[device].manual_seed(seed)
        return self.random()

    def buffers(self) -> Snapshot:
        return Snapshot(buffer_keys(self._modules))

    def learning_buffers(self) -> list[Tensor]:
        return learning_buffers(self._modules)

    def weights(self) -> Weights:
        return Weights(self._torch, () if self._sharded else self._modules)

    @contextlib.contextmanager
    def entered(self, evaluation: bool, precise: bool, still: bool = True) -> Generator[RngState, None, None]:
        """`evaluation`: all modules are in evaluation mode, else (`still`) only those that draw or take statistics; `precise`:
        without autocast and TF32. Yields the random state at the start."""
        torch = self._torch
        state = self.random()
        buffers, attributes, weights = self.buffers(), self.attributes(), self.weights()
        modes = [(module, module.training) for module in self._modules]
        found = [(module, getattr(module, "_compiled_call_impl", None)) for module in self._modules]
        compiled = [(module, call) for module, call in found if call is not None]
        quiet = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
        try:
            for module, _ in compiled:
                module._compiled_call_impl = None  # nothing is compiled anew for two samples
            for module in self._modules:
                if evaluation or (still and isinstance(module, quiet)):
                    module.training = False
            with contextlib.ExitStack() as stack:
                stack.enter_context(unmade(torch, self._modules))
                if precise:
                    stack.enter_context(_without_autocast(torch))
                    stack.enter_context(without_tf32(torch))
                yield state
        finally:
            for module, training in modes:
                module.training = training
            for module, call in compiled:
                module._compiled_call_impl = call
            attributes.restore()
            buffers.restore()
            weights.restore()
            state.restore()
            torch.clear_autocast_cache()  # weights cast without a graph give no gradients
        buffers.require_restorable()

    def drop_graphs(self) -> None:
        """Detaches the weights that torch's older weight and spectral normalisation compute before each forward pass."""
        for module in self._modules:
            for hook in module._forward_pre_hooks.values():
                if type(hook).__name__ in ("SpectralNorm", "WeightNorm"):
                    weight = getattr(module, hook.name)
                    setattr(module, hook.name, weight.detach())


@contextlib.contextmanager
def _without_autocast(torch: Torch) -> Generator[None, None, None]:
    """Neither what is on, nor what a forward pass enters by itself, as the script may have it and a rung of mixed precision does."""
    kind: Any = torch.autocast
    original = kind.__enter__

    def enter(self: Any) -> Any:
        enabled, self._enabled = self._enabled, False
        try:
            return original(self)
        finally:
            self._enabled = enabled

    with contextlib.ExitStack() as stack:
        for device in device_types(torch):
            stack.enter_context(torch.autocast(device, enabled=False))
        kind.__enter__ = enter
        try:
            yield
        finally:
            kind.__enter__ = original


@contextlib.contextmanager
def without_tf32(torch: Torch) -> Generator[None, None, None]:
    backends: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul] if torch.cuda.is_available() else []
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = False
        yield
    finally:
        for backend, value in zip(backends, before):
            backend.allow_tf32 = value
