"""Finds optimizers whose class is none of torch's (fastai has its own), by what torch's optimizers have."""

from __future__ import annotations

from .existing import existing_objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Optimizer, Torch


class OtherOptimizers:
    """`find()` may be called as often as somebody asks for an optimizer: what the process holds is gone through at the first
    call, the second, the fourth, the eighth, and so on."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._calls = 0
        self._next = 1
        #: By class: whether it has the methods of an optimizer.
        self._kinds: dict[Any, bool] = {}

    def find(self) -> list[Optimizer]:
        self._calls += 1
        if self._calls < self._next:
            return []
        self._next *= 2
        # type(), not isinstance(): a lazy proxy would load its object for isinstance().
        try:
            held: list[Any] = existing_objects()
        except MemoryError:
            return []  # asked where memory has run out, to tell why: what was found before is known
        return [item for item in held if self._steps(type(item)) and self._trains(item)]

    def _steps(self, kind: Any) -> bool:
        known = self._kinds.get(kind)
        if known is None:
            # Classes themselves are not asked for attributes: a script's own may raise anything then.
            bases: list[Any] = type.mro(kind) if type(kind) is type else []
            names = {name for base in bases for name in base.__dict__}
            known = self._kinds[kind] = {"step", "zero_grad"} <= names
        return known

    def _trains(self, item: Any) -> bool:
        """Whether it has groups of parameters, as torch's optimizers have, and can be kept without keeping it alive."""
        try:
            if not isinstance(item.state, dict):
                return False
            parameters = [parameter for group in item.param_groups for parameter in group["params"]]
            hash(item)
        except Exception:  # properties of a library's own may raise anything
            return False
        return any(isinstance(each, self._torch.Tensor) and each.is_leaf for each in parameters)
