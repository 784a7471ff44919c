"""Random numbers: a micro-batch that is run again draws what it drew before."""

from __future__ import annotations

from ..watch.randomness import Randomness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ..types import Tensor, Torch


class RandomState:
    """The states that a forward pass may draw from, as they are now: those of the host, and of the CUDA `devices`."""

    def __init__(self, torch: Torch, devices: Iterable[int]) -> None:
        self._torch = torch
        self._host = Randomness(torch)
        self._devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def restore(self) -> None:
        self._host.restore()
        for device, state in self._devices:
            self._torch.cuda.set_rng_state(state, device)


def cuda_devices(torch: Torch, tensors: Iterable[Tensor]) -> list[int]:
    """Indices of the CUDA devices that tensors lie on, ascending."""
    return sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
