"""Watches backward passes, and weights those of micro-batches. `Tensor.backward` ends up in the same function."""

from __future__ import annotations

import contextlib
import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Generator

    from ..types import Call, Torch


class BackwardPasses:
    """`weight()` is called at each outermost backward pass of the script: the factor on its gradients."""

    def __init__(self, torch: Torch, weight: Callable[[], float], scale: Callable[[], Any] | None = None) -> None:
        self._torch = torch
        self._weight = weight
        #: Gives another factor on the gradients (a loss scaler's); None: no factor.
        self.scale = scale
        self.active = True
        #: True while a backward pass runs. Not per thread: on a GPU checkpointing's inner passes run on another one.
        self.running = False
        #: The outermost backward pass accumulates into the `.grad` of all parameters.
        self._accumulates = False
        #: One entry for each pass that runs, outermost or inside of another (a hook's, a custom function's), and gives the gradients of some
        #: tensors only. A list, as a GPU's passes run on threads of their own, and its methods are atomic.
        self._of_some: list[None] = []
        #: The number of passes that raised an exception.
        self.failures = 0

    @property
    def plain(self) -> bool:
        """Whether a backward pass runs that accumulates into the `.grad` of all parameters, and none of another kind inside of it."""
        return self._accumulates and not self._of_some

    def install(self) -> None:
        self._watch_grad(self._torch.autograd.grad)
        original = self._torch.autograd.backward
        watch = self

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            every = not kwargs.get("inputs") and len(args) < 4
            if watch.running or not watch.active:
                with contextlib.nullcontext() if every else watch._giving_some():
                    return original(tensors, grad_tensors, *args, **kwargs)
            factor = watch._weight()
            if watch.scale is not None:
                factor = factor * watch.scale()
            if not isinstance(factor, float) or factor != 1.0:
                tensors, grad_tensors = watch._weigh(tensors, grad_tensors, factor)
            watch.running = True
            watch._accumulates = every
            try:
                return original(tensors, grad_tensors, *args, **kwargs)
            except BaseException:
                watch.failures += 1
                raise
            finally:
                watch.running = watch._accumulates = False

        self._torch.autograd.backward = backward

    def _watch_grad(self, original: Call) -> None:
        watch = self

        @functools.wraps(original)
        def grad(*args: Any, **kwargs: Any) -> Any:
            with watch._giving_some():
                return original(*args, **kwargs)

        self._torch.autograd.grad = grad

    @contextlib.contextmanager
    def _giving_some(self) -> Generator[None, None, None]:
        self._of_some.append(None)
        try:
            yield
        finally:
            self._of_some.pop()

    def _weigh(self, tensors: Any, gradients: Any, factor: Any) -> tuple[Any, Any]:
        torch = self._torch
        single = isinstance(tensors, torch.Tensor)
        tensors = (tensors,) if single else tuple(tensors)
        if gradients is None:
            gradients = (None,) * len(tensors)
        elif isinstance(gradients, torch.Tensor):
            gradients = (gradients,)
        # If a tensor is no scalar and has no gradient, torch raises the right error.
        weighed = tuple(
            (torch.ones_like(tensor) * factor if tensor.numel() == 1 else None)
            if gradient is None
            else gradient * factor
            for tensor, gradient in zip(tensors, gradients)
        )
        return tensors, weighed
