"""What modules keep besides their parameters and buffers (caches, counters, a state that goes from one call to the next), and what the
script's hooks on them do."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import collections
import functools
import io
import types

from .lazy_layers import is_made
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
#: Who has one of these may be changed by another thread.
OF_THREADS = frozenset(("_thread", "threading", "queue"))
#: What is in a container of at most so many entries is seen, too.
FEW = 1024
#: Of objects and containers in one another so many are seen: the outermost, what is in it, and so on.
LEVELS = 3
#: An array of at most so many elements is copied, so that it can be compared and brought back.
SMALL_ARRAY = 1 << 20


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
    if type(found) is not dict or "_parameters" in found:  # a module, which is looked at as one
        return None
    return None if any(type(each).__module__ in OF_THREADS for each in found.values()) else found


class Own:
    """What one module or weight keeps, without what torch gives to every module (`torchs`)."""

    def __init__(self, owner: Any, torchs: frozenset[str]) -> None:
        self._attributes: dict[str, Any] = owner.__dict__
        self._torchs = torchs

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in self._attributes.items() if name not in self._torchs)

    def __setitem__(self, name: str, value: Any) -> None:
        # A layer or weight that a forward pass has put in its place would be hidden by it, and made anew by every pass.
        for kind in ("_modules", "_parameters", "_buffers"):
            made = self._attributes.get(kind)
            if isinstance(made, dict) and name in made:
                del made[name]
        self._attributes[name] = value

    def __delitem__(self, name: str) -> None:
        del self._attributes[name]


class Attributes:
    """The attributes of some modules or weights, and some hooks' variables, as they are now. What is changed in place is seen of tensors,
    containers, objects of ordinary classes and arrays of numpy; a large tensor is brought back only after copy()."""

    def __init__(self, torch: Torch, owners: Sequence[Module | Tensor], variables: Iterable[Variables] = ()) -> None:
        self._torch = torch
        torchs = of_every_module(torch)
        self._places: list[Own | Variables] = [*(Own(owner, torchs) for owner in owners), *variables]
        self._before = [dict(place.items()) for place in self._places]
        values = [(name, value) for before in self._before for name, value in before.items()]
        held = _Held(torch)
        for name, value in values:
            held.add(name, value)
        # A model that adds hooks to its modules at its first call notes that in an attribute: both are brought back.
        hooks = [name for name in torchs if "_hooks" in name]
        for owner in owners:
            for name in hooks:
                held.add(name, owner.__dict__.get(name), LEVELS)
        self._tensors = [(name, value, value._version, self._small_copy(value)) for name, value in held.tensors]
        self._containers = held.containers

    def _small_copy(self, tensor: Tensor) -> Tensor | None:
        return tensor.clone() if tensor.numel() <= SMALL and not tensor.requires_grad else None

    def changed(self) -> list[str]:
        """Names of those that are others since, in order."""
        return sorted({name for name, _ in self._others()})

    def left(self) -> dict[str, list[Any]]:
        """What those are that are others since, by name."""
        found: dict[str, list[Any]] = {}
        for name, value in self._others():
            found.setdefault(name, []).append(self._as_it_is(value))
        return found

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
        if any(value._version != version for _, value, version, _ in self._tensors):
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
    if _is_array(one):
        return _same(one, other)
    return unknown


class _Held:
    """Tensors and what else can be changed in place, with its entries as they are now, by the name of the attribute that holds it."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self.tensors: list[tuple[str, Tensor]] = []
        self.containers: list[tuple[str, Any, Any]] = []
        #: By id, in how many others each was found.
        self._seen: dict[int, int] = {}

    def add(self, name: str, value: Any, level: int = 1) -> None:
        """`level`: of LEVELS; what is in the last one is not looked at."""
        if isinstance(value, self._torch.Tensor):
            if id(value) not in self._seen and is_made(value) and not value.is_inference():
                self._seen[id(value)] = level
                self.tensors.append((name, value))
            return
        plain = isinstance(value, (list, dict, set, collections.deque)) or _is_array(value)
        container = value if plain else own_dict(value)
        before = self._seen.get(id(value))
        if container is None or (before is not None and before <= level):
            return
        self._seen[id(value)] = level
        if before is None:
            self.containers.append((name, container, _copy(container)))
        if level < LEVELS and not isinstance(container, set) and not _is_array(container) and len(container) <= FEW:
            for entry in list(container.values() if isinstance(container, dict) else container):
                self.add(name, entry, level + 1)


def _is_array(value: Any) -> bool:
    kind = type(value)
    if (kind.__module__, kind.__name__) != ("numpy", "ndarray"):
        return False
    return not value.dtype.hasobject and value.flags.writeable and value.size <= SMALL_ARRAY


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, collections.deque)):
        return list(value)
    if isinstance(value, set):
        return set(value)
    return value.copy() if _is_array(value) else value


def _same(container: Any, entries: Any) -> bool:
    if _is_array(container):
        return container.shape == entries.shape and container.tobytes() == entries.tobytes()
    if len(container) != len(entries):
        return False
    if isinstance(entries, dict):
        return all(key in container and container[key] is value for key, value in entries.items())
    if isinstance(entries, list):
        return all(one is other for one, other in zip(container, entries))
    return container == entries


def _refill(container: Any, entries: Any) -> None:
    if isinstance(container, collections.deque):
        container.clear()
        container.extend(entries)
    elif isinstance(entries, list):
        container[:] = entries
    elif _is_array(container):
        container[...] = entries
    else:
        container.clear()
        container.update(entries)
