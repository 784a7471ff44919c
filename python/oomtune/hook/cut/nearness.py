"""Whether two outputs are the same but for rounding."""

from __future__ import annotations

from .dense import has_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Tensor, Torch


def near(torch: Torch, one: Any, other: Any, tolerance: float) -> bool:
    """Of two leaves of an output."""
    if not isinstance(one, torch.Tensor):
        if isinstance(one, float) and isinstance(other, float):
            return one == other or abs(one - other) <= tolerance * max(abs(one), abs(other)) or one != one
        return type(one) is type(other) and (one == other if _comparable(one) else True)
    if not isinstance(other, torch.Tensor):
        return False
    if not (has_rows(one) and has_rows(other)):
        return True  # nothing is known of them, and no call that returns one is cut
    if one.shape != other.shape:
        return False
    return apart(torch, one, other) <= tolerance


def apart(torch: Torch, one: Tensor, other: Tensor) -> float:
    """The relative difference of two tensors; of numbers that are not rounded any counts."""
    if not one.is_floating_point() and not one.is_complex():
        return 0.0 if torch.equal(one, other) else float("inf")
    kind = torch.complex128 if one.is_complex() else torch.double
    one, other = (torch.nan_to_num(each.detach().to(kind)) for each in (one, other))
    return float((one - other).norm()) / max(float(one.norm()), float(other.norm()), 1e-30)


def _comparable(value: Any) -> bool:
    return isinstance(value, (str, bytes, int, bool, type(None)))
