"""The rung of a process whose knobs its environment names: put on once, when training begins and the models exist."""

from __future__ import annotations

from .knobs import RungKnobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..types import Module


class PendingRung:
    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._waiting: Any = None
        if instrumentation.hook.settings.knobs & set(RungKnobs.NAMES):
            # Without a loader the first forward pass after the optimizer was made shows the loop.
            module = instrumentation.torch.nn.modules.module
            self._waiting = module.register_module_forward_pre_hook(self._first_forward)

    @property
    def pending(self) -> bool:
        return self._waiting is not None

    def apply(self) -> None:
        """Before the first batch. Only the first call does anything."""
        if self._waiting is not None:
            self._waiting.remove()
            self._waiting = None
            self._instrumentation.apply_rung()

    def _first_forward(self, module: Module, inputs: Any) -> None:
        instrumentation = self._instrumentation
        # 8-bit moments are those of an optimizer that has been made.
        early = instrumentation.cut.calls.early and not instrumentation.hook.settings.rung.optimizer_8bit
        if (instrumentation.optimizers.exist() or early) and instrumentation.torch.is_grad_enabled():
            self.apply()
