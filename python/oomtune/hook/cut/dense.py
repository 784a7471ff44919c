"""Tensors that have a place for each of their values, and others."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import Tensor


def has_rows(tensor: Tensor) -> bool:
    """Whether it is neither sparse nor nested: rows can be taken from it, and joined."""
    return str(tensor.layout) == "torch.strided" and not tensor.is_nested


def is_dense(tensor: Tensor) -> bool:
    """The same, and that its values can be compared as they are."""
    return has_rows(tensor) and not tensor.is_quantized


def dense_instead(tensor: Tensor) -> tuple[str, str]:
    """(of which kind a tensor without rows is, how it gets some)."""
    nested = ("nested", "padded (by torch.nested.to_padded_tensor())")
    return nested if tensor.is_nested else ("sparse", "dense (by to_dense())")
