"""What a script sets on a model between its calls (a flag, a criterion, a function): how the model is cut may go by it. What the model changes by
itself in a call or its backward pass is no such change."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import itertools
import weakref

from .attributes import of_every_module, own_dict
from .fsdp import is_sharded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..types import Module, Torch

#: Every change of a setting that has not changed more often is looked at; later ones the 2nd, 4th, 8th time.
EACH = 3
#: Settings in an object or container of at most so many entries are seen.
FEW = 256

PLAIN = frozenset((bool, int, str, type(None)))
#: Kinds of attributes that can be compared as they are.
FIXED = frozenset((*PLAIN, float))
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Settings:
    """Those of one module and the modules in it. begin() is called before each of its calls and of their backward passes, end() after it."""

    def __init__(self, torch: Torch, module: Module) -> None:
        self._torch = torch
        self._module = weakref.ref(module)
        #: What each module was left with, by its id.
        self._left: dict[int, OwnSettings] = {}
        #: By module and number of each setting: in how many changes since the latest that made a difference it took part.
        self._changes: dict[tuple[int, int], int] = {}
        #: Plans that were made with an earlier one are to be made anew.
        self.version = 0

    def begin(self) -> None:
        before, now = self._left, self._now()
        self._left = now
        places = list(_differing(before, now)) if before else []
        for place in places:
            self._changes[place] = self._changes.get(place, 0) + 1
        # A step's number makes no difference, and would be looked at in every step.
        if any(_is_looked_at(self._changes[place]) for place in places):
            self.version += 1

    def end(self) -> None:
        self._left = self._now()

    def made_a_difference(self) -> None:
        """The module is cut in another way since the latest change."""
        self._changes.clear()

    def _now(self) -> dict[int, OwnSettings]:
        before, now = self._left, {}
        modules: list[Any] = [self._module()]
        for module in modules:  # which grows meanwhile
            key = id(module)
            if module is None or key in now:
                continue
            known = before.get(key)
            now[key] = known if known is not None and known.holds(module) else OwnSettings(self._torch, module)
            children = module._modules
            if children:
                modules.extend(children.values())
        return now


class NoSettings(Settings):
    """Of a module whose weights are sharded between ranks: it notes in attributes what it has gathered, after the backward pass, too."""

    def _now(self) -> dict[int, OwnSettings]:
        return {}


class OwnSettings:
    """The settings of one module, without those of the modules in it: of tensors only whether they are there, of numbers with a fraction whether
    they are zero."""

    def __init__(self, torch: Torch, module: Module) -> None:
        attributes, torchs = module.__dict__, of_every_module(torch)
        self._kind = type(module)
        self._training = module.training
        self._buffers = [buffer is None for _, buffer in module._buffers.items()]
        hooks = [tuple(map(id, (getattr(module, kind, None) or {}).values())) for kind in HOOKS]
        values = [value for name, value in attributes.items() if name not in torchs]
        self._children = [id(child) for child in module._modules.values()]
        own = self._kind, self._training, self._buffers, self._children
        self.settings = [*own, *hooks, *(_setting(torch, each) for each in values)]
        #: Most modules have only settings that can be compared as they are, which costs a small part of the time.
        self._first = len(torchs)
        usual = len(attributes) >= self._first and torchs.issuperset(itertools.islice(attributes, self._first))
        fixed = usual and not any(hooks) and all(map(_is_fixed, values))
        self._fixed = [list(each) if type(each) is list else each for each in values] if fixed else None

    def holds(self, module: Module) -> bool:
        """Whether it is known without a closer look that they are the same."""
        attributes = module.__dict__
        return (
            self._fixed is not None
            and list(itertools.islice(attributes.values(), self._first, None)) == self._fixed
            and attributes["training"] is self._training
            and type(module) is self._kind
            and not attributes["_forward_hooks"]
            and not attributes["_forward_pre_hooks"]
            and (not attributes["_modules"] or list(map(id, attributes["_modules"].values())) == self._children)
            and (
                not attributes["_buffers"]
                or [buffer is None for buffer in attributes["_buffers"].values()] == self._buffers
            )
        )


class ModuleSettings:
    """The settings of each module that is called."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: By id of each module that was asked for.
        self._known: dict[int, tuple[weakref.ref[Any], Settings]] = {}

    def of(self, module: Module) -> Settings:
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            self._known = {key: each for key, each in self._known.items() if each[0]() is not None}
            settings = (NoSettings if is_sharded(module.modules()) else Settings)(self._torch, module)
            known = self._known[id(module)] = (weakref.ref(module), settings)
        return known[1]


def _is_looked_at(count: int) -> bool:
    later = count - EACH
    return later <= 0 or (later > 1 and later & (later - 1) == 0)


def _differing(before: dict[int, OwnSettings], now: dict[int, OwnSettings]) -> Iterator[tuple[int, int]]:
    """The places of settings that differ. Where a module is another one, so are the children of one around it."""
    for key, other in now.items():
        one = before.get(key)
        if one is None or one is other:
            continue
        if len(one.settings) != len(other.settings):
            yield key, -1
        else:
            pairs = enumerate(zip(one.settings, other.settings))
            yield from ((key, number) for number, (setting, since) in pairs if setting != since)


def _setting(torch: Torch, value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return value != 0.0
    if isinstance(value, torch.Tensor):
        return torch.Tensor
    inner = value if kind is list or kind is dict else own_dict(value)
    if inner is None:
        return id(value)
    entries = inner if kind is list else inner.values()
    return id(value), len(inner), [_plainly(entry) for entry in entries] if len(inner) <= FEW else []


def _plainly(value: Any) -> Any:
    kind = type(value)
    return value if kind in PLAIN else value != 0.0 if kind is float else kind


def _is_fixed(value: Any) -> bool:
    kind = type(value)
    if kind is tuple or kind is list:
        return len(value) <= FEW and all(type(each) in PLAIN for each in value)
    return kind in FIXED
