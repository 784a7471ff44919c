"""What modules keep besides their parameters and buffers (caches, counters, a state that goes from one call to the next), and what the
script's hooks on them do."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import io
import types

from .pytree import tree_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Sequence

    from ..types import Module, Tensor, Torch
    from .hook_variables import Variables

#: A tensor of at most so many elements is copied, so that it can be brought back.
SMALL = 1 << 14
#: Objects that are not made of values, though they have attributes.
NO_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType, functools.partial, io.IOBase)
#: Whose objects look after themselves (handles, streams, locks); modules of torch are seen as such.
MANAGED = frozenset(("torch", "oomtune", "threading", "logging", "weakref", "multiprocessing", "concurrent", "asyncio"))
#: Containers in a container of at most so many entries are seen, too.
FEW = 1024


@functools.lru_cache(maxsize=None)
def of_every_module(torch: Torch) -> frozenset[str]:
    """The names of the attributes that torch gives to every module."""
    return frozenset(torch.nn.Module().__dict__)


def own_dict(value: Any) -> dict[str, Any] | None:
    """The attributes of an object of an ordinary class; None: it is something else, of which nothing is looked at."""
    kind = type(value)
    # (asked of the object itself, as a lazy proxy would load what it stands for)
    if not kind.__dictoffset__ or issubclass(kind, NO_STATE) or kind.__module__.partition(".")[0] in MANAGED:
        return None
    found = object.__getattribute__(value, "__dict__")
    return None if type(found) is not dict or "_parameters" in found else found  # a module, which is looked at as one


class Own:
    """What one module or weight keeps, without what torch gives to every module (`torchs`)."""

    def __init__(self, owner: Any, torchs: frozenset[str]) -> None:
        self._attributes: dict[str, Any] = owner.__dict__
        self._torchs = torchs

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in self._attributes.items() if name not in self._torchs)

    def __setitem__(self, name: str, value: Any) -> None:
        self._attributes[name] = value

    def __delitem__(self, name: str) -> None:
        del self._attributes[name]


class Attributes:
    """The attributes of some modules or weights, and some hooks' variables, as they are now. What is changed in place is seen of tensors and
    containers; a large tensor is brought back only after copy()."""

    def __init__(self, torch: Torch, owners: Sequence[Module | Tensor], variables: Iterable[Variables] = ()) -> None:
        self._torch = torch
        torchs = of_every_module(torch)
        self._places: list[Own | Variables] = [*(Own(owner, torchs) for owner in owners), *variables]
        self._before = [dict(place.items()) for place in self._places]
        values = [(name, value) for before in self._before for name, value in before.items()]
        tensors = [(name, value) for name, value in values if isinstance(value, torch.Tensor)]
        self._tensors = [
            (name, value, value._version, self._small_copy(value))
            for name, value in tensors
            if not value.is_inference()
        ]
        self._containers = [found for name, value in values for found in _containers(name, value)]
        # A model that adds hooks to its modules at its first call notes that in an attribute: both are brought back.
        hooks = [name for name in torchs if "_hooks" in name]
        self._containers += [
            found
            for owner in owners
            for name in hooks
            for found in _containers(name, owner.__dict__.get(name), inner=True)
        ]

    def _small_copy(self, tensor: Tensor) -> Tensor | None:
        return tensor.clone() if tensor.numel() <= SMALL and not tensor.requires_grad else None

    def changed(self) -> list[str]:
        """Names of those that are others since, in order."""
        return sorted({name for name, _ in self._others()})

    def left(self) -> dict[str, Any]:
        """What those are that are others since, by name."""
        return {name: self._as_it_is(value) for name, value in self._others()}

    def _as_it_is(self, value: Any, inner: bool = False) -> Any:
        if isinstance(value, self._torch.Tensor):
            return value.detach().clone()
        copy = _copy(value)
        if not inner and isinstance(copy, dict):
            return {key: self._as_it_is(entry, True) for key, entry in copy.items()}
        return [self._as_it_is(entry, True) for entry in copy] if not inner and isinstance(copy, list) else copy

    def _others(self) -> Iterator[tuple[str, Any]]:
        for name, value, version, _ in self._tensors:
            if value._version != version:
                yield name, value
        for name, container, entries in self._containers:
            if not _same(container, entries):
                yield name, container
        for place, before in zip(self._places, self._before):
            after = dict(place.items())
            for name in {**before, **after}:
                if before.get(name) is not after.get(name):
                    yield name, after.get(name)

    def restore(self) -> None:
        for place, before in zip(self._places, self._before):
            after = dict(place.items())
            for name, value in after.items():
                if name not in before:
                    del place[name]
                elif value is not before[name]:
                    place[name] = before[name]
            for name in before.keys() - after.keys():
                place[name] = before[name]
        for _, container, entries in self._containers:
            if not _same(container, entries):
                _refill(container, entries)
        with self._torch.no_grad():
            for _, value, version, copy in self._tensors:
                if copy is not None and value._version != version:
                    value.copy_(copy)

    def copy(self) -> None:
        """Puts copies in the place of tensors, so that restore() brings back whatever is changed in place."""
        for place, before in zip(self._places, self._before):
            for name, value in before.items():
                if isinstance(value, self._torch.Tensor) and not value.requires_grad:
                    place[name] = value.clone()

    def touched(self) -> bool:
        """After copy(): whether any has changed since, in place or not."""
        if not all(_same(container, entries) for _, container, entries in self._containers):
            return True
        for place, before in zip(self._places, self._before):
            after = dict(place.items())
            if after.keys() != before.keys():
                return True
            if not all(alike(self._torch, after[name], before[name]) for name in before):
                return True
        return False

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


def alike(torch: Torch, one: Any, other: Any, unknown: bool = False) -> bool:
    """Whether both are the same values. `unknown`: what is taken of objects of which nothing is known."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(torch, one[key], other[key], unknown) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(alike(torch, *pair, unknown) for pair in zip(one, other))
    if isinstance(one, (set, str, bytes, int, float, complex)):
        return one == other
    return unknown


def _containers(name: str, value: Any, inner: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """(name, container, its entries): of a list, dictionary or set, and of those in it."""
    if not isinstance(value, (list, dict, set)):
        return
    yield name, value, _copy(value)
    if not inner and not isinstance(value, set) and len(value) <= FEW:
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _containers(name, entry, True)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else set(value) if isinstance(value, set) else value


def _same(container: Any, entries: Any) -> bool:
    if len(container) != len(entries):
        return False
    if isinstance(entries, dict):
        return all(key in container and container[key] is value for key, value in entries.items())
    if isinstance(entries, list):
        return all(one is other for one, other in zip(container, entries))
    return container == entries


def _refill(container: Any, entries: Any) -> None:
    if isinstance(entries, list):
        container[:] = entries
    else:
        container.clear()
        container.update(entries)
