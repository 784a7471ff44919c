"""The part of its activations that a compiled model keeps for the backward pass: the compiler computes the others again (torch's
`activation_memory_budget`). Which it takes is its own choice, so memory and time of each value have to be measured."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch
    from ..watch.models import Modules

#: All of them, as far as the compiler sees a use in it: torch's own preset.
WHOLE = 1.0


class ActivationBudget:
    def __init__(self, torch: Torch, modules: Modules) -> None:
        self._torch = torch
        self._modules = modules
        #: What the script has set; None: it has not been looked at yet.
        self._own: float | None = None

    def possible(self) -> bool:
        """Not where the script has set a budget of its own."""
        return self._modules.compiled() and getattr(self._config(), "activation_memory_budget", None) == WHOLE

    def _config(self) -> Any:
        try:
            return importlib.import_module("torch._functorch.config")
        except ImportError:  # before torch 2.0
            return None

    def switch(self, wanted: str) -> None:
        """`wanted`: such as `0.5`; empty: the script's own."""
        config = self._config() if wanted or self._own is not None else None
        if config is None:
            return
        if self._own is None:
            self._own = config.activation_memory_budget
        budget = float(wanted) if wanted else self._own
        if config.activation_memory_budget != budget:
            config.activation_memory_budget = budget
            # What is compiled already was planned for another budget.
            self._torch._dynamo.reset()
