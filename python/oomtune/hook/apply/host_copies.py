"""Copies between a GPU and pinned host memory, on streams of their own: those that come, those that go, and the computation run side by side."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from ..types import Tensor, Torch


class HostCopies:
    """For one device. Whoever waits for a copy waits on the device; `rest` alone has the process wait."""

    def __init__(self, torch: Torch, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._coming = torch.cuda.Stream(device)
        self._going = torch.cuda.Stream(device)

    @staticmethod
    def on_device(tensor: Tensor) -> bool:
        return tensor.is_cuda

    def host_like(self, tensor: Tensor) -> Tensor:
        # With its strides: a step on others rounds in another way.
        return self._torch.empty_like(tensor, device="cpu", pin_memory=True)

    def bring(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        """The tensors on the device, and what `wait` takes before they are used."""
        # Their memory is the computation's, which may be at work in it still.
        found = [self._torch.empty_like(each, device=self._device) for each in tensors]
        return found, self._copy(self._coming, zip(found, tensors))

    def send(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Any:
        """Copies (host, device) pairs to the host. The tensors of the device have to be kept until `wait` was called with what this returns."""
        return self._copy(self._going, pairs)

    def _copy(self, stream: Any, pairs: Iterable[tuple[Tensor, Tensor]]) -> Any:
        stream.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(stream):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
        return stream.record_event()

    def wait(self, copied: Any) -> None:
        self._torch.cuda.current_stream(self._device).wait_event(copied)

    def rest(self) -> None:
        """Until all is copied, there and here."""
        self._coming.synchronize()
        self._going.synchronize()


class CopiesByDevice:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._known: dict[Any, HostCopies] = {}

    @staticmethod
    def on_device(tensor: Tensor) -> bool:
        return HostCopies.on_device(tensor)

    def of(self, tensor: Tensor) -> HostCopies | None:
        """Those of the tensor's device; None: it is on none beside the host."""
        if not self.on_device(tensor):
            return None
        if tensor.device not in self._known:
            self._known[tensor.device] = HostCopies(self._torch, tensor.device)
        return self._known[tensor.device]
