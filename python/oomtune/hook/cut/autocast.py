"""Restores the autocast state of the forward pass: the backward pass runs outside of the script's `with`."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Torch


class AutocastState:
    """The autocast state as it is now, to be entered again later."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._kinds = [_state(torch, kind) for kind in device_types(torch)]

    @property
    def fp16(self) -> bool:
        """Whether gradients may underflow."""
        return any(enabled and dtype == self._torch.float16 for _, enabled, dtype in self._kinds)

    @contextlib.contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Enters the state. Weights cast inside stay cached until the outermost of these contexts ends."""
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self._kinds:
                stack.enter_context(self._torch.autocast(kind, enabled=enabled, dtype=dtype))
            yield

    @contextlib.contextmanager
    def disabled(self) -> Generator[None, None, None]:
        with contextlib.ExitStack() as stack:
            for kind, enabled, _ in self._kinds:
                if enabled:
                    stack.enter_context(self._torch.autocast(kind, enabled=False))
            yield

    def clear_cache(self) -> None:
        """Drops cached casts: weights cast without a graph must not be used where gradients are needed."""
        self._torch.clear_autocast_cache()


def device_types(torch: Torch) -> tuple[str, ...]:
    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def _state(torch: Torch, kind: str) -> tuple[str, bool, Any]:
    if hasattr(torch, "get_autocast_dtype"):
        return kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    if kind == "cuda":
        return kind, torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
    return kind, torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
