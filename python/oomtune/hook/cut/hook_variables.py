"""The variables that the script's hooks on modules can write to. A hook runs with each micro-batch, also while a module is looked at."""

# The functions that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import functools
import itertools

from .attributes import Own, of_every_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Union

    from ..types import Module, Torch

    Variables = Union["Cells", "Globals", "Own"]

KINDS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_KINDS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
#: Their hooks change what a module returns, and keep nothing of the samples.
OTHERS = ("torch", "oomtune")


class Cells:
    """Those of the functions around it."""

    def __init__(self, function: Any) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def items(self) -> Iterator[tuple[str, Any]]:
        for name, cell in self._cells.items():
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue

    def __setitem__(self, name: str, value: Any) -> None:
        self._cells[name].cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self._cells[name].cell_contents


class Globals:
    """Those of its file that it names."""

    def __init__(self, function: Any) -> None:
        self._variables: dict[str, Any] = function.__globals__
        self._names: tuple[str, ...] = function.__code__.co_names

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self._variables[name]) for name in self._names if name in self._variables)

    def __setitem__(self, name: str, value: Any) -> None:
        self._variables[name] = value

    def __delitem__(self, name: str) -> None:
        del self._variables[name]


def hook_variables(torch: Torch, modules: Iterable[Module]) -> list[Variables]:
    """Of all hooks on these modules and of those on all modules, without torch's own."""
    torchs = torch.nn.modules.module
    every = [getattr(torchs, kind, None) or {} for kind in GLOBAL_KINDS]
    own = [getattr(module, kind, None) or {} for module in modules for kind in KINDS]
    hooks = {id(hook): hook for hook in itertools.chain.from_iterable(found.values() for found in (*every, *own))}
    common = of_every_module(torch)
    return [variables for hook in hooks.values() for variables in _variables(hook, common)]


def _variables(hook: Any, torchs: frozenset[str]) -> Iterator[Variables]:
    while isinstance(hook, functools.partial):
        for argument in (*hook.args, *hook.keywords.values()):
            yield from _of_object(argument, torchs)
        hook = hook.func
    named = getattr(hook, "__module__", None) or type(hook).__module__
    if named.partition(".")[0] in OTHERS:
        return
    owner = getattr(hook, "__self__", hook)
    function = getattr(hook, "__func__", None) or (hook if hasattr(hook, "__code__") else type(hook).__call__)
    yield from _of_object(owner, torchs)
    if hasattr(function, "__code__"):
        yield Cells(function)
        yield Globals(function)


def _of_object(owner: Any, torchs: frozenset[str]) -> Iterator[Own]:
    if isinstance(owner, (list, dict, set)):
        yield Own(_Holder(owner), torchs)
    elif hasattr(owner, "__dict__") and not isinstance(owner, type):
        yield Own(owner, torchs)


class _Holder:
    """Of a container that is given to a hook with each call."""

    def __init__(self, argument: Any) -> None:
        self.argument = argument
