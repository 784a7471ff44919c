"""A framework's training step as a module: what it does to a batch, besides calling the model, can be looked at like a model's own loss."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ..watch.rng_state import cuda_devices
from .attributes import Attributes
from .pytree import tree_leaves
from .sandbox import Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Call, Module, Torch
    from .model_calls import ModelCalls

#: Part of itself that a loss at least changes by where the number that it is to be divided by is twice as large.
DIVIDED = 0.1


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


def divides(torch: Torch, calls: ModelCalls, model: Module, loss: Call, inputs: dict[str, Any], items: Any) -> bool:
    """Whether `loss(model, inputs, num_items_in_batch)` is divided by that number, which is `items`: it is made twice, without a trace."""
    step = training_step(torch, model, loss, ("log",))
    tensors = [leaf for leaf in tree_leaves(torch, inputs) if isinstance(leaf, torch.Tensor)]
    sandbox = Sandbox(torch, model, cuda_devices(torch, tensors))
    found: list[float] = []
    for number in (items, 2 * items):
        with sandbox.entered(evaluation=False, precise=False), torch.no_grad(), calls.inner():
            found.append(float(step(model, dict(inputs), num_items_in_batch=number)))
    return abs(found[0] - found[1]) > DIVIDED * abs(found[0])


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
