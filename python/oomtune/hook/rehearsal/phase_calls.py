"""Calls by which a rehearsal knows what the script does: generation, saving, and the modes of models."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..types import Call, Module, Torch


def watch_modes(torch: Torch, switched: Callable[[Module, bool], None]) -> None:
    """`switched(module, training)` is called after each `train()` and `eval()` of a module, and of each inside of it."""
    kind = torch.nn.Module
    original = kind.train

    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        result = original(self, mode)
        switched(self, mode)
        return result

    kind.train = train


def watch_saves(torch: Torch, within: Callable[[Callable[[], Any]], Any]) -> None:
    torch.save = torch.serialization.save = _within(torch.save, within)


def watch_generation(modules: Iterable[Module], within: Callable[[Callable[[], Any]], Any]) -> None:
    """Of the classes of models that have `generate`: an attribute of the model would be saved with it."""
    for kind in {kind for module in modules for kind in type(module).__mro__}:
        original = vars(kind).get("generate")
        if callable(original) and not hasattr(original, "_oomtune"):
            setattr(kind, "generate", _within(original, within))


def _within(original: Call, within: Callable[[Callable[[], Any]], Any]) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return within(lambda: original(*args, **kwargs))

    setattr(call, "_oomtune", True)
    return call
