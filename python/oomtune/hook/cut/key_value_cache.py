"""The cache of keys and values that transformers' models keep for generation."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Module


def without_cache(module: Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name of a call that makes no such cache: what one micro-batch leaves there the next one would go on from."""
    config = getattr(module, "config", None)
    if getattr(config, "use_cache", False) is True and "use_cache" not in kwargs and _takes(module, "use_cache"):
        return dict(kwargs, use_cache=False)
    return kwargs


@functools.lru_cache(maxsize=64)
def _parameters(kind: Any) -> frozenset[str]:
    import inspect

    try:
        return frozenset(inspect.signature(kind.forward).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _takes(module: Module, name: str) -> bool:
    kind: Any = type(module)  # pyright: ignore[reportUnknownVariableType]
    return name in _parameters(kind)
