"""A framework's training step as a module: what it does to a batch, besides calling the model, can be looked at like a model's own loss."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from .attributes import Attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Call, Module, Torch


def training_step(torch: Torch, model: Module, step: Call, quiet: tuple[str, ...] = ()) -> Module:
    """A module that calls `step`, a method of the model or its trainer that returns the loss or a dictionary with it. `quiet`: methods of the
    same object that do nothing meanwhile (they log)."""
    owner: Any = getattr(step, "__self__", model)
    parts = [*model.modules(), *(() if owner is model else (owner,))]

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with _quiet(owner, quiet), _kept(torch, parts):
                found = step(*args, **kwargs)
            return found.get("loss") if isinstance(found, Mapping) else found

    return Step()


@contextlib.contextmanager
def _quiet(owner: Any, names: tuple[str, ...]) -> Generator[None, None, None]:
    try:
        for name in names:
            owner.__dict__[name] = _nothing
        yield
    finally:
        for name in names:
            owner.__dict__.pop(name, None)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


@contextlib.contextmanager
def _kept(torch: Torch, parts: list[Any]) -> Generator[None, None, None]:
    """What the model's parts and its trainer note and gather (counters, outputs of an epoch, a metric's sums) is that of copies, and
    afterwards as it was."""
    attributes = Attributes(torch, parts)
    attributes.copy()
    try:
        yield
    finally:
        attributes.restore()
