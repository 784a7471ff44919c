"""Activations that wait on the host for the backward pass. Their copies run beside the computation: what leaves is waited for only when
too much of it has piled up, and what comes back has been asked for a few tensors earlier."""

from __future__ import annotations

import weakref
from collections import deque

from .host_copies import CopiesByDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..types import Tensor, Torch
    from .host_copies import HostCopies

#: Numbers in a tensor from which it is worth its way.
LARGE = 2**14
#: Bytes on their way to the host that stay on the device at most, and bytes that are asked for ahead of their use; one tensor at least.
UNDER_WAY = 2**27
#: Tensors that are asked for ahead at most.
AHEAD = 16
#: A view of less than this part of its memory stays: the whole would have to go.
PART = 0.25


class StreamedActivations:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._copies = CopiesByDevice(torch)
        #: Those whose copy to the host may not be done yet, the earliest first; and their bytes.
        self._leaving: deque[tuple[weakref.ref[_Away], int]] = deque()
        self._under_way = 0
        #: By what they lie in: other views of the same memory need no copy of their own.
        self._latest: dict[Any, weakref.ref[_Away]] = {}
        self._weights: set[int] = set()
        #: Tensors that the present forward pass has saved, and how many of them go; None: all.
        self.saved = 0
        self._most: int | None = None
        #: What the present forward pass has saved last.
        self._last: weakref.ref[_Away] | None = None

    def hooks(self, weights: Iterable[Tensor], most: int | None = None) -> Any:
        """For one forward pass, of which the first `most` tensors go. Weights are on the device in any case."""
        self.saved, self._most = 0, most
        self._weights = {each.data_ptr() for each in weights}
        self._last = None
        self._latest.clear()
        return self._torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Any:
        flat = None if tensor.numel() < LARGE else self._memory(tensor)
        copies = None if flat is None else self._copies.of(flat)
        if flat is None or copies is None:
            return tensor
        self.saved += 1
        if self._most is not None and self.saved > self._most:
            return tensor
        return self._away(flat, copies, tensor._version), tensor.size(), tensor.stride(), tensor.storage_offset()

    def _memory(self, tensor: Tensor) -> Any:
        """All of the memory that the tensor lies in, as one row; None: the tensor stays where it is."""
        if type(tensor) not in (self._torch.Tensor, self._torch.nn.Parameter) or tensor.layout != self._torch.strided:
            return None
        take = getattr(tensor, "untyped_storage", None)
        whole = tensor.storage().nbytes() if take is None else take().nbytes()
        if tensor.numel() * tensor.element_size() < PART * whole:
            return None
        flat = tensor.detach().as_strided((whole // tensor.element_size(),), (1,), 0)
        return None if flat.data_ptr() in self._weights else flat

    def _away(self, flat: Tensor, copies: HostCopies, version: int) -> _Away:
        key = (flat.data_ptr(), flat.numel(), flat.dtype, version)
        known = self._latest.get(key)
        away = None if known is None else known()
        # As long as its memory is held here, it has not been given to another tensor.
        if away is not None and away.here is not None and away.here.data_ptr() == flat.data_ptr():
            return away
        away = _Away(flat, copies, self._last)
        self._last = self._latest[key] = weakref.ref(away)
        self._leaving.append((weakref.ref(away), away.size))
        self._under_way += away.size
        while len(self._leaving) > 1 and self._under_way > UNDER_WAY:
            first, size = self._leaving.popleft()
            self._under_way -= size
            earliest = first()
            if earliest is not None:
                earliest.leave()
        return away

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, self._torch.Tensor):
            return packed
        away, size, stride, offset = packed
        # What has not left by now is used soonest, and stays.
        self._leaving.clear()
        self._latest.clear()
        self._under_way = 0
        away.come()
        away.ask_ahead()
        return away.here.as_strided(size, stride, offset)


class _Away:
    """Some memory of the device, and what stands for it on the host. `last`: what was saved before it."""

    def __init__(self, flat: Tensor, copies: HostCopies, last: weakref.ref[_Away] | None) -> None:
        self.size = flat.numel() * flat.element_size()
        self._copies = copies
        self._last = last
        self._host = copies.host_like(flat)
        self._copied = copies.send([(self._host, flat)])
        #: None: it is on the host alone.
        self.here: Any = flat
        self._asked: Any = None

    def leave(self) -> None:
        self._copies.wait(self._copied)
        self.here = None

    def ask(self) -> None:
        if self.here is None and self._asked is None:
            (tensor,), copied = self._copies.bring([self._host])
            self._asked = (tensor, copied)

    def ask_ahead(self) -> None:
        """For what is used next, as a backward pass goes the other way."""
        asked, last = 0, self._last
        for number in range(AHEAD):
            away = None if last is None else last()
            if away is None or (number > 0 and asked + away.size > UNDER_WAY):
                return
            asked += away.size
            away.ask()
            last = away._last

    def come(self) -> None:
        self.ask()
        if self._asked is not None:
            self.here, copied = self._asked
            self._asked = None
            self._copies.wait(copied)

    def __del__(self) -> None:
        # What was asked for and never used: its memory must not go to another tensor before the copy is done.
        if self._asked is not None:
            self._copies.wait(self._asked[1])
