"""The states of random number generators: saved, compared and restored."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..types import Tensor, Torch


class HostRngState:
    """The generators that data loading draws from, as they are now: torch's on the CPU, Python's and, if it is loaded, numpy's.
    `like`: an earlier state, of which the parts that are the same are not kept twice (Python's takes 25 KiB)."""

    def __init__(self, torch: Torch, like: HostRngState | None = None) -> None:
        self._torch = torch
        self._torchs = torch.get_rng_state()
        self._pythons = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpys = None if numpy is None else numpy.random.get_state()
        if like is not None:
            self._share(like)

    def _share(self, like: HostRngState) -> None:
        if self._torch.equal(self._torchs, like._torchs):
            self._torchs = like._torchs
        if self._pythons == like._pythons:
            self._pythons = like._pythons
        if _plain(self._numpys) == _plain(like._numpys):
            self._numpys = like._numpys

    def __eq__(self, other: Any) -> bool:
        return (
            self._torch.equal(self._torchs, other._torchs)
            and self._pythons == other._pythons
            and _plain(self._numpys) == _plain(other._numpys)
        )

    def restore(self) -> None:
        self._torch.set_rng_state(self._torchs)
        random.setstate(self._pythons)
        if self._numpys is not None:
            sys.modules["numpy"].random.set_state(self._numpys)


def _plain(state: Any) -> Any:
    return None if state is None else tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)


class RngState:
    """The generators that a forward pass may draw from, as they are now: those of the host and of the CUDA `devices`. `like`: see
    HostRngState."""

    def __init__(self, torch: Torch, devices: Iterable[int], like: RngState | None = None) -> None:
        self._torch = torch
        self._host = HostRngState(torch, None if like is None else like._host)
        self._devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def __eq__(self, other: Any) -> bool:
        return self._host == other._host and all(
            one == another and self._torch.equal(state, after)
            for (one, state), (another, after) in zip(self._devices, other._devices)
        )

    def restore(self) -> None:
        self._host.restore()
        for device, state in self._devices:
            self._torch.cuda.set_rng_state(state, device)


def cuda_devices(torch: Torch, tensors: Iterable[Tensor]) -> list[int]:
    """Indices of the CUDA devices that the tensors are on, ascending."""
    return sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
