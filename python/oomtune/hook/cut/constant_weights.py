"""Weights with which a module returns the same for all samples: all alike, as a head of zeros is, or next to nothing, as word vectors are at first."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator, Iterable

    from ..types import Tensor, Torch


@contextlib.contextmanager
def varied(torch: Torch, parameters: Iterable[Tensor]) -> Generator[None, None, None]:
    """Inside, each such parameter has other values."""
    source = torch.Generator().manual_seed(0)  # the script's own draws nothing
    found: list[tuple[Tensor, Tensor]] = []
    try:
        for each in parameters:
            value = each.detach().flatten()[:1].clone()
            if each.numel() > 1 and bool((each.detach() == value).all()):
                found.append((each, value))
                # By .data, so that its version stays: a graph may hold it, but does not need these values.
                each.data.add_(_noise(torch, each, source))
        yield
    finally:
        for each, value in found:
            each.data.fill_(value[0])


@contextlib.contextmanager
def redrawn(torch: Torch, parameters: Iterable[Tensor]) -> Generator[None, None, None]:
    """Inside, all of them have other values, and are kept in host memory."""
    source = torch.Generator().manual_seed(0)
    found: list[tuple[Tensor, Tensor]] = []
    try:
        for each in parameters:
            found.append((each, each.detach().to("cpu", copy=True)))
            each.data.copy_(_noise(torch, each, source))
        yield
    finally:
        for each, value in found:
            each.data.copy_(value)


def _noise(torch: Torch, weight: Tensor, source: Any) -> Tensor:
    size = max(1, weight.shape[-1]) if weight.dim() else 1
    return (torch.randn(weight.shape, generator=source) / size**0.5).to(weight.device, weight.dtype)
