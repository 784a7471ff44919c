"""Weights that a forward pass writes to, as one does that initialises them from its first batch, or in which an encoder follows another one's
weights: each micro-batch's would. (One that only holds them to a norm does that once, however often it runs.)"""

from __future__ import annotations

from .refusal import WritesWeights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..types import Module, Tensor, Torch

#: Values of each weight that are looked at.
VALUES = 32
#: Roundings of its type by which a value may differ: a norm that is held again rounds it again.
ROUNDINGS = 16


class Weights:
    """The weights of some modules, as they are now."""

    def __init__(self, torch: Torch, modules: Iterable[Module]) -> None:
        self._torch = torch
        plain = (torch.Tensor, torch.nn.Parameter)
        #: By device and type: each with its name.
        self._groups: dict[Any, list[tuple[str, Tensor]]] = {}
        for module in modules:
            for name, weight in module.named_parameters(recurse=False):
                if type(weight) in plain and weight.is_floating_point() and weight.numel() and weight.is_contiguous():
                    named = "%s.%s" % (type(module).__name__, name), weight
                    self._groups.setdefault((weight.device, weight.dtype), []).append(named)
        self._values = {kind: self._some(group) for kind, group in self._groups.items()}
        self._places = {kind: [weight.data_ptr() for _, weight in group] for kind, group in self._groups.items()}

    def _some(self, group: list[tuple[str, Tensor]]) -> Tensor:
        return self._torch.cat([weight.detach().view(-1)[:: _stride(weight)] for _, weight in group])

    def require_same(self) -> None:
        """Raises WritesWeights if one has other values now, or one that does not learn was made anew."""
        for kind, group in self._groups.items():
            places = zip(group, self._places[kind])
            moved = (
                name for (name, weight), place in places if weight.data_ptr() != place and not weight.requires_grad
            )
            name = next(moved, None) or self._other(kind, group)
            if name is not None:
                raise WritesWeights("its forward pass writes to its weights (%s), as each micro-batch's would" % name)

    def _other(self, kind: Any, group: list[tuple[str, Tensor]]) -> str | None:
        """The name of one that has other values now."""
        before, now, rounding = self._values[kind], self._some(group), ROUNDINGS * self._torch.finfo(kind[1]).eps
        alike = (now == before) | (now.isnan() & before.isnan()) | ((now - before).abs() <= rounding * before.abs())
        if bool(alike.all()):
            return None
        at = alike.tolist().index(False)
        for name, weight in group:
            at -= -(-weight.numel() // _stride(weight))
            if at < 0:
                return name
        return None


def _stride(weight: Tensor) -> int:
    return -(-weight.numel() // VALUES)
