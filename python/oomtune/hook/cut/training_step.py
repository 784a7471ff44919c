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
    """A module that calls `step`, a method of the model that returns the loss or a dictionary with it. `quiet`: methods of the model that
    do nothing meanwhile (they log)."""

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with _quiet(model, quiet), _kept(torch, model):
                found = step(*args, **kwargs)
            return found.get("loss") if isinstance(found, Mapping) else found

    return Step()


@contextlib.contextmanager
def _quiet(model: Module, names: tuple[str, ...]) -> Generator[None, None, None]:
    try:
        for name in names:
            model.__dict__[name] = _nothing
        yield
    finally:
        for name in names:
            model.__dict__.pop(name, None)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


@contextlib.contextmanager
def _kept(torch: Torch, model: Module) -> Generator[None, None, None]:
    """What the model's parts note and gather (counters, outputs of an epoch, a metric's sums) is that of copies, and afterwards as it was."""
    attributes = Attributes(torch, list(model.modules()))
    attributes.copy()
    try:
        yield
    finally:
        attributes.restore()
