"""In which order the dimensions of a tensor lie in memory: what draws numbers (randn_like) fills a tensor in it, and view() may ask for it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..types import Tensor, Torch


def memory_order(torch: Torch, tensor: Tensor) -> list[int]:
    """The dimensions from the outermost to the innermost, as torch.empty_like() has them."""
    return _dense_order(torch.empty_like(tensor, device="meta"))


def empty_whole(torch: Torch, part: Tensor, shape: Sequence[int], known: Sequence[int] | None) -> Tensor:
    """A tensor of the shape of the whole batch's, in the order of a micro-batch's. `known`: the order for a micro-batch of one row, which
    has no place in memory that could be seen, and may be computed in another order."""
    hidden = any(there == 1 and size > 1 for there, size in zip(part.shape, shape))
    order = known if hidden and known is not None else memory_order(torch, part)
    lies = torch.empty([shape[dim] for dim in order], device="meta").permute(_inverse(order))
    return part.new_empty_strided(shape, lies.stride())  # no view: what autograd returns as one cannot be written to


def as_dense(part: Tensor, whole: Tensor) -> Tensor:
    """The part, copied if needed: without gaps if the whole has none, in the same order."""
    if whole.is_contiguous():
        return part.contiguous()
    order = _dense_order(whole)
    if not whole.permute(order).is_contiguous():
        return part
    return part.permute(order).contiguous().permute(_inverse(order))


def _dense_order(tensor: Tensor) -> list[int]:
    # Of the same stride are dimensions of size 1 and the one around which they lie.
    return sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), -tensor.shape[dim]))


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=lambda dim: order[dim])
