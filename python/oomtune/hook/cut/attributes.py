"""What modules keep besides their parameters and buffers: caches, counters, or a state that goes from one call to the next."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from .pytree import tree_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..types import Module, Tensor, Torch


class Attributes:
    """The attributes of some modules or weights, as they are now. What is changed in place is seen of tensors only, and restored only after
    copy()."""

    def __init__(self, torch: Torch, modules: Sequence[Module | Tensor]) -> None:
        self._torch = torch
        self._modules = modules
        #: What every module has: torch's own.
        self._torchs = frozenset(torch.nn.Module().__dict__)
        self._before = [dict(self._own(module)) for module in modules]
        self._versions = [
            (name, value, value._version)
            for attributes in self._before
            for name, value in attributes.items()
            if isinstance(value, torch.Tensor) and not value.is_inference()
        ]

    def _own(self, module: Module | Tensor) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in module.__dict__.items() if name not in self._torchs)

    def changed(self) -> list[str]:
        """Names of those that are others since, in order."""
        found = {name for name, value, version in self._versions if value._version != version}
        for module, before in zip(self._modules, self._before):
            after = dict(self._own(module))
            found |= {name for name in {**before, **after} if before.get(name) is not after.get(name)}
        return sorted(found)

    def restore(self) -> None:
        for module, before in zip(self._modules, self._before):
            for name, value in dict(self._own(module)).items():
                if name not in before:
                    del module.__dict__[name]
                elif value is not before[name]:
                    module.__dict__[name] = before[name]
            for name in before.keys() - module.__dict__.keys():
                module.__dict__[name] = before[name]

    def copy(self) -> None:
        """Puts copies in the place of what can be changed in place, so that restore() brings that back as well."""
        for module, before in zip(self._modules, self._before):
            for name, value in before.items():
                if type(value) in (list, dict, set):
                    module.__dict__[name] = value.copy()
                elif isinstance(value, self._torch.Tensor) and not value.requires_grad:
                    module.__dict__[name] = value.clone()

    def touched(self) -> bool:
        """After copy(): whether any has changed since, in place or not."""
        for module, before in zip(self._modules, self._before):
            after = dict(self._own(module))
            if after.keys() != before.keys() or not all(self._alike(after[name], before[name]) for name in before):
                return True
        return False

    def _alike(self, now: Any, before: Any) -> bool:
        if now is before:
            return True
        if type(now) is not type(before):
            return False
        if isinstance(now, self._torch.Tensor):
            return now.shape == before.shape and self._torch.equal(now, before)
        if isinstance(now, dict):
            return now.keys() == before.keys() and all(now[key] is before[key] for key in now)
        if isinstance(now, list):
            return len(now) == len(before) and all(one is other for one, other in zip(now, before))
        return isinstance(now, set) and now == before

    def with_rows(self, count: int) -> str | None:
        """The first that holds a tensor with as many rows, in one of its dimensions."""
        for attributes in self._before:
            for name, value in attributes.items():
                if isinstance(value, (self._torch.Tensor, tuple, list)) and any(
                    isinstance(leaf, self._torch.Tensor) and count in leaf.shape
                    for leaf in tree_leaves(self._torch, value)
                ):
                    return name
        return None
