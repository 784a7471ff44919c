"""Weights that are all alike at first, as a head of zeros is: with them a module returns the same for all samples."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generator, Iterable

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
                noise = torch.randn(each.shape, generator=source) / max(1, each.shape[-1]) ** 0.5
                # By .data, so that its version stays: a graph may hold it, but does not need these values.
                each.data.add_(noise.to(each.device, each.dtype))
        yield
    finally:
        for each, value in found:
            each.data.fill_(value[0])
