"""Sees backward passes, and weighs those of micro-batches. `Tensor.backward` goes through the same function."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Torch


class Backward:
    """`weight()` is asked at each outermost backward pass of the script."""

    def __init__(self, torch: Torch, weight: Callable[[], float], scale: Callable[[], Any] | None = None) -> None:
        self._torch = torch
        self._weight = weight
        #: Another factor on the gradients (a loss scaler's); None: none.
        self.scale = scale
        self.active = True
        #: True while one runs. A plain flag: on a GPU checkpointing's inner passes run on another thread.
        self.running = False
        #: The one that runs gathers all gradients where they always do.
        self.plain = False
        #: Passes that ended in an exception.
        self.failures = 0

    def install(self) -> None:
        original = self._torch.autograd.backward
        watch = self

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if watch.running or not watch.active:
                return original(tensors, grad_tensors, *args, **kwargs)
            factor = watch._weight()
            if watch.scale is not None:
                factor = factor * watch.scale()
            if not isinstance(factor, float) or factor != 1.0:
                tensors, grad_tensors = watch._weigh(tensors, grad_tensors, factor)
            watch.running = True
            watch.plain = not kwargs.get("inputs") and len(args) < 4
            try:
                return original(tensors, grad_tensors, *args, **kwargs)
            except BaseException:
                watch.failures += 1
                raise
            finally:
                watch.running = watch.plain = False

        self._torch.autograd.backward = backward

    def _weigh(self, tensors: Any, gradients: Any, factor: Any) -> tuple[Any, Any]:
        torch = self._torch
        single = isinstance(tensors, torch.Tensor)
        tensors = (tensors,) if single else tuple(tensors)
        if gradients is None:
            gradients = (None,) * len(tensors)
        elif isinstance(gradients, torch.Tensor):
            gradients = (gradients,)
        # Where a tensor is no scalar and has no gradient torch itself has the right words.
        weighed = tuple(
            (torch.ones_like(tensor) * factor if tensor.numel() == 1 else None)
            if gradient is None
            else gradient * factor
            for tensor, gradient in zip(tensors, gradients)
        )
        return tensors, weighed
