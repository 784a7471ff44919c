"""Mixed precision: autocast around the models' forward pass, and a loss scaler with fp16."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Optimizer, Torch
    from ..watch.backward_passes import BackwardPasses
    from ..watch.optimizers import Optimizers


class Autocast:
    """`recomputes()`: whether a checkpoint recomputes a part of a forward pass now."""

    def __init__(self, torch: Torch, recomputes: Callable[[], bool]) -> None:
        self._torch = torch
        self._recomputes = recomputes
        self._device = "cpu"
        self._dtype = None
        #: True while the hook's own autocast is on.
        self.inside = False

    def switch(self, amp: str, device: str) -> None:
        self._device = device
        self._dtype = {"bf16": self._torch.bfloat16, "fp16": self._torch.float16}.get(amp)

    def around(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        if self._dtype is None or self.inside or self._again():
            return call(*args, **kwargs)
        self.inside = True
        try:
            with self._torch.autocast(self._device, dtype=self._dtype):
                output = call(*args, **kwargs)
        finally:
            self.inside = False
        return self._single(output)

    def _again(self) -> bool:
        """Whether a checkpoint of the script's own recomputes a part that was inside: torch has restored its precision."""
        if not self._recomputes():
            return False
        try:
            return self._torch.is_autocast_enabled(self._device)
        except TypeError:  # before torch 2.4
            cpu = self._device == "cpu"
            return self._torch.is_autocast_cpu_enabled() if cpu else self._torch.is_autocast_enabled()

    def around_norm(self, call: Call, value: Any) -> Any:
        return call(value.float() if self._dtype is not None else value)

    def _single(self, output: Any) -> Any:
        torch = self._torch
        if isinstance(output, torch.Tensor):
            return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output
        if isinstance(output, tuple) and hasattr(output, "_fields"):
            return type(output)(*(self._single(part) for part in output))
        if isinstance(output, (list, tuple)) and type(output) in (list, tuple):
            return type(output)(self._single(part) for part in output)
        if isinstance(output, Mapping):
            values: Any = output
            for key, value in list(values.items()):
                single = self._single(value)
                if single is not value:
                    values[key] = single
        return output


def watch_autocast(torch: Torch, ours: Callable[[], bool], found: Callable[[], None]) -> None:
    """Calls found() when the script turns on autocast itself. `ours()`: whether the hook does."""
    kind = torch.autocast
    original = kind.__enter__

    def __enter__(self: Any) -> Any:
        if getattr(self, "_enabled", False) and not ours():
            found()
        return original(self)

    kind.__enter__ = __enter__


class LossScaling:
    """From begin() to end() gradients are scaled in the backward pass and unscaled before they are used."""

    def __init__(self, torch: Torch, backward: BackwardPasses, optimizers: Optimizers) -> None:
        self._torch = torch
        self._backward = backward
        self._optimizers = optimizers
        self._scaler: Any = None
        self._right: set[int] = set()
        self._due = False
        self._used = False

    @property
    def on(self) -> bool:
        """Whether gradients are scaled now: from the first backward pass after begin() on."""
        return self._scaler is not None and self._used

    def begin(self) -> None:
        if self._scaler is None:
            amp = getattr(self._torch, "amp", None)
            kind = getattr(amp, "GradScaler", None)
            self._scaler = kind("cuda") if kind is not None else self._torch.cuda.amp.GradScaler()
            self._backward.scale = self._factor
            self._optimizers.scaling = self

    def end(self) -> None:
        if self._scaler is not None:
            self._scaler = None
            self._used = False
            self._backward.scale = None
            self._optimizers.scaling = None

    def _factor(self) -> Any:
        if self._due:
            self._due = False
            self._right.clear()
            self._scaler.update()
        self._used = True
        device = next((p.device for p in self._optimizers.parameters()), "cuda")
        return self._scaler.scale(self._torch.ones((), device=device))

    def set_right(self) -> None:
        """Unscales the gradients, once per step, before they are clipped."""
        for optimizer in self._optimizers.known():
            if id(optimizer) not in self._right:
                self._right.add(id(optimizer))
                self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._due = True
        return self._scaler.step(optimizer, *args, **kwargs)
