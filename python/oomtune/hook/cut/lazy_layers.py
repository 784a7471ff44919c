"""Layers that wait for their first call to know their shape (torch.nn.LazyLinear)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Module, Tensor


def is_made(tensor: Tensor) -> bool:
    """Whether it has a shape: before the first call, what such a layer has answers nothing."""
    return not hasattr(tensor, "materialize")


def waits(owner: Any) -> bool:
    """Whether it is such a layer, and was not called yet. (One whose weights were loaded has a shape, and becomes another kind of layer
    at its first call all the same.)"""
    own = owner.__dict__
    kept = [each for kind in ("_parameters", "_buffers") for _, each in own.get(kind, {}).items()]
    return "_initialize_hook" in own or not all(each is None or is_made(each) for each in kept)


def has_waiting(module: Module) -> bool:
    return any(map(waits, module.modules()))
