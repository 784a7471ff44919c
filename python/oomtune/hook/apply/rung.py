"""Switches the rung (precision, checkpointing, offload of activations to host memory, chunked loss, what the optimizer keeps) of the models in this process."""

from __future__ import annotations

import functools

from .activation_budget import ActivationBudget
from .bf16_weights import Bf16Weights
from .blocks import BlockCosts
from .checkpointing import Checkpointing
from .chunked_loss import ChunkedLoss
from .forward_wrappers import ForwardWrappers
from .offload import Offload
from .optimizer_8bit import Optimizer8bit
from .optimizer_on_host import OptimizerOnHost
from .precision import Autocast, LossScaling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..hook import Hook
    from ..types import Call, Memory, Module, Torch
    from ..watch.backward_passes import BackwardPasses
    from ..watch.models import Modules
    from ..watch.optimizers import Optimizers
    from .first_passes import FirstPasses
    from .knobs import RungKnobs


class Rung:
    """`recomputes()`: whether a checkpoint recomputes a part of a forward pass now, and restores the context itself."""

    def __init__(
        self,
        torch: Torch,
        modules: Modules,
        optimizers: Optimizers,
        backward: BackwardPasses,
        recomputes: Callable[[], bool],
        hook: Hook,
    ) -> None:
        self._torch = torch
        self._modules = modules
        forwards = self._forwards = ForwardWrappers()
        self.autocast = Autocast(torch, recomputes)
        self._offload = Offload(torch, recomputes, modules)
        costs = BlockCosts(torch, lambda: _measured_memory(hook))
        inside = (self.autocast, self._offload)
        self._checkpointing = Checkpointing(torch, modules, forwards, costs, recomputes, inside)
        self.chunked_loss = ChunkedLoss(torch, modules, forwards, hook.stop_unchunked)
        self.activation_budget = ActivationBudget(torch, modules)
        self.optimizer_8bit = Optimizer8bit(torch, optimizers, hook.stop_without_8bit)
        self.bf16_weights = Bf16Weights(torch, modules, optimizers)
        self.optimizer_on_host = OptimizerOnHost(torch, modules, optimizers)
        self._scaling = LossScaling(torch, backward, optimizers)
        self._wrapped = False

    def _on_gpu(self) -> bool:
        return any(p.is_cuda for root in self._modules.roots() for p in root.parameters())

    def can_amp(self) -> bool:
        if not hasattr(self._torch, "autocast") or self._torch.float32 not in self._modules.dtypes():
            return False
        return not self._on_gpu() or self._has_bf16()

    def _has_bf16(self) -> Any:
        """Whether the GPU has bf16 itself: emulated, it is slower than single precision."""
        try:
            return self._torch.cuda.is_bf16_supported(including_emulation=False)
        except TypeError:  # before torch 2.4
            return self._torch.cuda.is_bf16_supported()

    def can_fp16(self) -> bool:
        return self._on_gpu() and self._torch.float32 in self._modules.dtypes()

    def can_checkpoint(self) -> bool:
        return self._checkpointing.possible()

    def block_count(self) -> int:
        """Blocks of which checkpointing can take some; 0: it takes all or none."""
        return len(self._checkpointing.blocks())

    def block_costs(self) -> list[tuple[int, float]] | None:
        """(bytes, seconds) of each block, where all of them are checkpointed; None: not known."""
        return self._checkpointing.costs()

    def can_offload(self) -> bool:
        return self._on_gpu() and self._offload.possible()

    def can_offload_part(self) -> bool:
        return self.can_offload() and self._offload.takes_part()

    def can_chunk_loss(self) -> bool:
        return self.chunked_loss.possible()

    def why_not(self) -> dict[str, str]:
        """Why a knob cannot be turned on, by its name, where that is worth telling."""
        parts = {
            "chunked_loss": self.chunked_loss,
            "optimizer_8bit": self.optimizer_8bit,
            "bf16_weights": self.bf16_weights,
            "optimizer_on_host": self.optimizer_on_host,
        }
        reasons = {name: part.why_not() for name, part in parts.items()}
        return {name: why for name, why in reasons.items() if why is not None}

    def unchunked(self) -> str | None:
        """Why the loss is not computed in chunks, though the rung asks for it; None: it is, or the rung does not."""
        return self.chunked_loss.unchunked()

    def switch(self, knobs: RungKnobs) -> None:
        amp = knobs.amp
        if not self._wrapped and (amp != "off" or knobs.offload):
            self._wrapped = True
            for module in self._outer():
                self._forwards.wrap(module, self.autocast.around)
                self._forwards.wrap(module, functools.partial(self._offload.around, module))
            for module in self._narrow_norms():
                self._forwards.wrap(module, self.autocast.around_norm)
        self.autocast.switch(amp, "cuda" if self._on_gpu() else "cpu")
        self._offload.switch(knobs.offload, knobs.offloaded_part)
        self._checkpointing.switch(knobs.checkpointing, knobs.checkpointed_blocks)
        self.chunked_loss.switch(knobs.chunked_loss)
        self.activation_budget.switch(knobs.activation_memory_budget)
        self.bf16_weights.switch(knobs.bf16_weights)
        self.optimizer_8bit.switch(knobs.optimizer_8bit)
        self.optimizer_on_host.switch(knobs.optimizer_on_host)
        if amp == "fp16":
            self._scaling.begin()
        else:
            self._scaling.end()

    def watch(self, module: Module, look: Call) -> None:
        """Calls look(module, output) after each forward pass of the module."""

        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            output = call(*args, **kwargs)
            look(module, output)
            return output

        self._forwards.wrap(module, around)

    def watch_passes(self, passes: FirstPasses) -> None:
        """Has `passes` look at the forward passes of the models and of their parts."""
        for module in self._outer():
            self._forwards.wrap(module, functools.partial(passes.around, module))

    def _narrow_norms(self) -> list[Any]:
        """Layers in which torch before 2.0, on the CPU, cannot mix half-precision inputs with single-precision weights."""
        if self._on_gpu() or int(self._torch.__version__.split(".")[0]) > 1:
            return []
        nn = self._torch.nn
        return [module for module in self._modules.all() if isinstance(module, (nn.LayerNorm, nn.GroupNorm))]

    def _outer(self) -> Iterator[Any]:
        """The models and their parts: a script may call `model.encoder(x)` and never the model itself."""
        container = (self._torch.nn.ModuleList, self._torch.nn.ModuleDict)
        for root in self._modules.roots():
            yield root
            for child in root.children():
                if not isinstance(child, container):
                    yield child


def _measured_memory(hook: Hook) -> Memory | None:
    """The device's memory where a search measures what steps take of it."""
    parts = hook.instrumentation
    if parts is None or parts.card is not None or not hook.settings.searching:
        return None
    return parts.memory
