"""Weights that a forward pass writes to, as one does that initialises them from its first batch, or in which an encoder follows another one's
weights: each micro-batch's would. (One that only holds them to a norm does that once, however often it runs.)"""

from __future__ import annotations

import itertools

from .refusal import ReplacesWeights, WritesWeights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    from ..types import Module, Tensor, Torch

#: Values of each weight that are looked at.
VALUES = 32
#: Roundings of its type by which a value may differ: a norm that is held again rounds it again.
ROUNDINGS = 16


class Weights:
    """The weights of some modules, as they are now."""

    def __init__(self, torch: Torch, modules: Iterable[Module]) -> None:
        self._torch = torch
        modules = list(modules)
        plain = (torch.Tensor, torch.nn.Parameter)
        #: Where each is: its module, its name there and itself. (A scripted module cannot replace one.)
        own = [module for module in modules if isinstance(module._parameters, dict)]
        self._places = [(module, *named) for module in own for named in module.named_parameters(recurse=False)]
        #: By device and type: each with its name.
        self._groups: dict[Any, list[tuple[str, Tensor]]] = {}
        for module in modules:
            for name, weight in module.named_parameters(recurse=False):
                # (first of all its type: a layer that waits for its first call to know its shape has weights that answer nothing)
                dense = type(weight) in plain and weight.layout == torch.strided and not weight.is_meta
                if dense and weight.is_floating_point() and weight.numel() and weight.is_contiguous():
                    named = "%s.%s" % (type(module).__name__, name), weight
                    self._groups.setdefault((weight.device, weight.dtype), []).append(named)
        self._values = {kind: self._some(group) for kind, group in self._groups.items()}
        self._data = {kind: [weight.data for _, weight in group] for kind, group in self._groups.items()}

    def _some(self, group: list[tuple[str, Tensor]]) -> Tensor:
        return self._torch.cat([self._numbers(weight.detach()).view(-1)[:: _stride(weight)] for _, weight in group])

    def _numbers(self, weight: Tensor) -> Tensor:
        """Of types in 8 bits and fewer the bytes: they cannot be computed with."""
        return weight if weight.element_size() > 1 else weight.contiguous().view(self._torch.uint8).float()

    def require_same(self) -> None:
        """Raises WritesWeights if one has other values now or the module another one, and ReplacesWeights if it is another tensor, which restore() takes back."""
        for module, name, _ in self._replaced():
            named = "%s.%s" % (type(module).__name__, name)
            raise WritesWeights("its forward pass replaces its weights (%s), as each micro-batch's would" % named)
        for name, replaced in self._written():
            failure = ReplacesWeights if replaced else WritesWeights
            raise failure("its forward pass writes to its weights (%s), as each micro-batch's would" % name)

    def written(self) -> list[str]:
        """Names of some that have other values now, whichever tensor holds them. One that is elsewhere now, or of another shape, was
        offloaded or freed."""
        found = ((kind, self._other(kind, group)) for kind, group in self._groups.items())
        return [self._groups[kind][at][0] for kind, at in found if at is not None and not self._is_elsewhere(kind, at)]

    def _written(self) -> Iterator[tuple[str, bool]]:
        """(its name, whether it is another tensor) of the first of each type that is another now."""
        for kind, group in self._groups.items():
            moved = [weight.data_ptr() != data.data_ptr() for (_, weight), data in zip(group, self._data[kind])]
            at = next((at for at, (_, weight) in enumerate(group) if moved[at] and not weight.requires_grad), None)
            at = self._other(kind, group) if at is None else at
            if at is not None:
                yield group[at][0], moved[at]

    def _replaced(self) -> Iterator[tuple[Module, str, Tensor]]:
        """The places that have another weight now (`self.weight = nn.Parameter(…)`). One that is a plain tensor now is gathered or parametrised."""
        for module, name, weight in self._places:
            now = module._parameters.get(name)
            if now is not weight and isinstance(now, self._torch.nn.Parameter):
                yield module, name, weight

    def restore(self) -> None:
        """Takes back the weights of modules that have others now, and the tensors of those that do (`weight.data = …`)."""
        for module, name, weight in self._replaced():
            module._parameters[name] = weight
        for kind, group in self._groups.items():
            for (_, weight), data in zip(group, self._data[kind]):
                if weight.data_ptr() != data.data_ptr():
                    weight.data = data

    def _other(self, kind: Any, group: list[tuple[str, Tensor]]) -> int | None:
        """The first that has other values now."""
        elsewhere = [at for at in range(len(group)) if self._is_elsewhere(kind, at)]
        if elsewhere:
            return elsewhere[0]
        before, now = self._values[kind], self._some(group)
        rounding = ROUNDINGS * self._torch.finfo(now.dtype).eps
        alike = (now == before) | (now.isnan() & before.isnan()) | ((now - before).abs() <= rounding * before.abs())
        if bool(alike.all()):
            return None
        at = alike.tolist().index(False)
        ends = itertools.accumulate(-(-weight.numel() // _stride(weight)) for _, weight in group)
        return next(number for number, end in enumerate(ends) if at < end)

    def _is_elsewhere(self, kind: Any, at: int) -> bool:
        """Whether it is on another device now, or of another type or shape."""
        weight, data = self._groups[kind][at][1], self._data[kind][at]
        return (weight.device, weight.dtype, weight.shape) != (data.device, data.dtype, data.shape)


def _stride(weight: Tensor) -> int:
    return -(-weight.numel() // VALUES)
