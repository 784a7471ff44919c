"""Weights that a forward pass writes to, as one does that initialises them from its first batch, or in which an encoder follows another one's
weights: each micro-batch's would. (One that only holds them to a norm does that once, however often it runs.)"""

from __future__ import annotations

from .refusal import WritesWeights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

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
        self._found: list[tuple[str, Tensor]] = [
            ("%s.%s" % (type(module).__name__, name), weight)
            for module in modules
            for name, weight in module.named_parameters(recurse=False)
            if type(weight) in plain and weight.is_floating_point() and weight.numel() and weight.is_contiguous()
        ]
        self._values = [self._some(weight).clone() for _, weight in self._found]
        self._places = [weight.data_ptr() for _, weight in self._found]

    def _some(self, weight: Tensor) -> Tensor:
        return weight.detach().view(-1)[:: -(-weight.numel() // VALUES)]

    def require_same(self) -> None:
        """Raises WritesWeights if one has other values now, or one that does not learn was made anew."""
        if not self._found:
            return
        device = self._values[0].device
        flags = [self._differs(weight, before).to(device) for before, (_, weight) in zip(self._values, self._found)]
        differ = self._torch.stack(flags).tolist()
        for other, place, (name, weight) in zip(differ, self._places, self._found):
            if other or (not weight.requires_grad and weight.data_ptr() != place):
                raise WritesWeights("its forward pass writes to its weights (%s), as each micro-batch's would" % name)

    def _differs(self, weight: Tensor, before: Tensor) -> Tensor:
        now, rounding = self._some(weight), ROUNDINGS * self._torch.finfo(weight.dtype).eps
        alike = (now == before) | (now.isnan() & before.isnan()) | ((now - before).abs() <= rounding * before.abs())
        return ~alike.all()
