"""What training keeps on the device from step to step, in bytes: weights, gradients and optimizer state."""

from __future__ import annotations

from ..watch.batch_tree import leaves
from ..watch.cudnn import may_do_with_less

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..messages import Breakdown
    from ..types import Tensor, Torch
    from ..watch.models import Modules
    from ..watch.optimizers import Optimizers


class MemoryBreakdown:
    """Counts each storage once, whole, however many tensors share it; skips tensors on other devices. Must not fail or
    allocate: figures that are not available are None."""

    def __init__(self, torch: Torch, optimizers: Optimizers, modules: Modules, device: str) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._modules = modules
        self._device = device
        #: The most seen before a step, when each parameter has its gradient.
        self.gradient_bytes = None

    def see_gradients(self) -> None:
        seen: dict[int, int] = {}
        if self._add(self._parameters(), seen) is None:
            return
        found = self._add((parameter.grad for parameter in self._optimizers.parameters()), seen)
        if found is not None:
            self.gradient_bytes = max(found, self.gradient_bytes or 0)

    def figures(self) -> Breakdown:
        seen: dict[int, int] = {}
        parameters = self._add(self._parameters(), seen)
        state = None
        if parameters is not None:
            self._add((parameter.grad for parameter in self._optimizers.parameters()), seen)
            state = self._add(self._state(), seen)
        return {
            "parameter_bytes": parameters,
            "gradient_bytes": self.gradient_bytes,
            "optimizer_state_bytes": state,
        }

    def may_do_with_less(self) -> bool:
        """Whether a library may have been given more than it needs."""
        return may_do_with_less(self._torch, self._modules)

    def _parameters(self) -> Iterator[Any]:
        """Trained parameters and the frozen ones of the same models."""
        yield from self._optimizers.parameters()
        for root in self._modules.roots():
            yield from root.parameters()

    def _state(self) -> Iterator[Any]:
        for optimizer in self._optimizers.known():
            for state in list(optimizer.state.values()):
                yield from leaves(state)

    def _add(self, tensors: Any, seen: dict[int, int]) -> int | None:
        """Adds storages to `seen` (bytes by address); returns the bytes added, or None if a tensor does not tell."""
        total = 0
        try:
            for tensor in tensors:
                for part in self._dense(tensor):
                    address, size = self._storage(part)
                    if address and size > seen.get(address, 0):
                        total += size - seen.get(address, 0)
                        seen[address] = size
        except Exception:  # fake tensors, wrappers and those of other back ends have no storage
            return None
        return total

    def _dense(self, tensor: Tensor) -> tuple[Tensor, ...]:
        if not isinstance(tensor, self._torch.Tensor):
            return ()
        tensor = getattr(tensor, "_local_tensor", tensor)  # this rank's part of a sharded tensor
        if str(tensor.device) != self._device:
            return ()
        if tensor.layout == self._torch.sparse_coo:
            return (tensor._indices(), tensor._values())
        return (tensor,)

    @staticmethod
    def _storage(tensor: Tensor) -> tuple[int, int]:
        """(address, bytes)."""
        take = getattr(tensor, "untyped_storage", None) or tensor.storage
        storage = take()
        # On a card that is not there no storage has an address.
        return storage.data_ptr() or getattr(storage, "_cdata", 0), int(storage.nbytes())
