"""Which rows an index takes of logits."""

# What a script indexes with can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rows_of(index: Any, dims: int) -> tuple[Any, ...] | None:
    """The index without its part for the last dimension, which has to be whole; None: it is not."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = 0
    for part in parts:
        if isinstance(part, list) or type(part).__name__ == "LazyLogits":
            return None
        if part is not None and part is not Ellipsis:
            kind_of = getattr(part, "dtype", None)
            used += part.dim() if kind_of is not None and "bool" in str(kind_of) else 1
    dots = [at for at, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or used > dims:
        return None
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (dims - used)
        used = dims
    if used == dims:
        last = parts.pop() if parts else None
        if not isinstance(last, slice) or last != slice(None):
            return None
    return tuple(parts)
