"""Random numbers: a micro-batch that is run again draws what it drew before."""

from ..watch.randomness import Randomness


class Draws:
    """The states that a forward pass may draw from, as they are now: those of the host, and of the CUDA `devices`."""

    def __init__(self, torch, devices):
        self._torch = torch
        self._host = Randomness(torch)
        self._devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def restore(self):
        self._host.restore()
        for device, state in self._devices:
            self._torch.cuda.set_rng_state(state, device)


def cuda_devices(torch, tensors):
    """Indices of the CUDA devices that tensors lie on, ascending."""
    return sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
