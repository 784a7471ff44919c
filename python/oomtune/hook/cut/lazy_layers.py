"""Layers that wait for their first call to know their shape (torch.nn.LazyLinear)."""

from __future__ import annotations

import contextlib

from .refusal import Unseen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator, NoReturn, Sequence

    from ..types import Module, Tensor, Torch


def is_made(tensor: Tensor) -> bool:
    """Whether it has a shape: before the first call, what such a layer has answers nothing."""
    return not hasattr(tensor, "materialize")


def waits(owner: Any) -> bool:
    """Whether it is such a layer, and was not called yet. (One whose weights were loaded has a shape, and becomes another kind of layer
    at its first call all the same.)"""
    own = owner.__dict__
    kept = [each for kind in ("_parameters", "_buffers") for _, each in own.get(kind, {}).items()]
    return "_initialize_hook" in own or not all(each is None or is_made(each) for each in kept)


@contextlib.contextmanager
def unmade(torch: Torch, modules: Sequence[Module]) -> Generator[None, None, None]:
    """Within it a call of such a layer raises Unseen. A pass of a few samples would make it, too, but for good, and not always as all samples would:
    its first weights may depend on the data, on the rows, and on what else is drawn."""
    waiting = [module for module in modules if waits(module)]
    if not waiting:
        yield
        return

    def refuse(own: Any, *args: Any, **kwargs: Any) -> NoReturn:
        layer = next(
            (each for each in waiting if each is own or any(p is own for p in each.parameters(False))), waiting[0]
        )
        raise Unseen(
            "%s waits for its first call to know its shape (called once before the training, on a sample and under torch.no_grad(), "
            "the model has its layers)" % type(layer).__name__
        )

    places: list[tuple[Any, str]] = [
        (torch.nn.parameter.UninitializedTensorMixin, "materialize"),
        # One whose weights were loaded is not made, and becomes another kind of layer.
        (torch.nn.modules.lazy.LazyModuleMixin, "has_uninitialized_params"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    try:
        for owner, name in places:
            setattr(owner, name, refuse)
        yield
    finally:
        for (owner, name), original in zip(places, before):
            setattr(owner, name, original)
