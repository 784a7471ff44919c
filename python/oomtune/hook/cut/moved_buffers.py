"""Buffers that a forward pass moves."""

from __future__ import annotations

from .buffers import buffer_keys, buffer_of, version_of
from .dense import is_dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..types import Module, Tensor, Torch

#: Of a larger buffer so many values are looked at, and whether it has been written to: a copy of all would take the training's memory.
SMALL = 1 << 16
VALUES = 32


class MovedBuffers:
    """The buffers of some modules as they are now, but for batch normalisation's, which is told of by itself."""

    def __init__(self, torch: Torch, modules: Sequence[Module]) -> None:
        self._torch = torch
        norm = torch.nn.modules.batchnorm._BatchNorm
        keys = buffer_keys(each for each in modules if not isinstance(each, norm))
        buffers = [(owner, name, buffer_of(owner, name)) for owner, name in keys]
        self._before = [
            (owner, name, buffer, version_of(buffer), self._some(buffer).clone())
            for owner, name, buffer in buffers
            if buffer is not None and self._is_plain(buffer)
        ]

    def names(self) -> list[str]:
        """Of those that have other values now. One of another shape is a cache that was made larger."""
        return [
            "%s.%s" % (type(owner).__name__, name)
            for owner, name, buffer, version, some in self._before
            if self._is_moved(buffer, buffer_of(owner, name), version, some)
        ]

    def _is_plain(self, buffer: Tensor) -> bool:
        return type(buffer) is self._torch.Tensor and is_dense(buffer) and not buffer.is_meta

    def _is_moved(self, buffer: Tensor, now: Tensor | None, version: int, some: Tensor) -> bool:
        if now is None or (now.shape, now.dtype, now.device) != (buffer.shape, buffer.dtype, buffer.device):
            return False
        if buffer.numel() > SMALL and now is buffer and version_of(now) != version:
            return True
        return not self._torch.equal(self._some(now), some)

    def _some(self, buffer: Tensor) -> Tensor:
        """As bytes: not all types have numbers that can be compared."""
        torch, values = self._torch, buffer.detach().reshape(-1)
        chosen = values if len(values) <= SMALL else values[:: -(-len(values) // VALUES)]
        return chosen.resolve_conj().contiguous().view(torch.uint8)
