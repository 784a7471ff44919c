"""Random numbers that belong to their sample: shows what a module makes of its samples although it draws in its forward pass."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Tensor, Torch, Tree

#: Operators that draw numbers whatever their tensors hold. What else draws (dropout) shows in another run.
DRAWS = frozenset(
    (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_"),
    )
)


class SampleDraws:
    """For runs of one module on `count` samples, the first on all of them: in each later one a sample gets what it drew then."""

    def __init__(self, torch: Torch, count: int) -> None:
        self._torch = torch
        self._count = count
        #: What the first run drew, in order; None: it is yet to come.
        self._drawn: list[Tensor] | None = None

    def run(self, forward: Callable[[], Tree], first: int, stop: int) -> Tree:
        """A run on the samples from `first` up to `stop`."""
        drawn: list[Tensor] = []
        before = None if self._drawn is None else iter(self._drawn)

        def draws(found: Tensor) -> None:
            if before is None:
                drawn.append(found.clone())
                return
            kept = next(before, None)
            if kept is not None and kept.dim() and kept.shape != found.shape and not len(kept) % self._count:
                each = len(kept) // self._count
                kept = kept[first * each : stop * each]
            if kept is not None and kept.shape == found.shape:
                found.copy_(kept)

        with _mode(self._torch, draws):
            output = forward()
        if self._drawn is None:
            self._drawn = drawn
        return output


def _mode(torch: Torch, draws: Callable[[Tensor], None]) -> Any:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ in DRAWS and isinstance(found, torch.Tensor):
                draws(found)
            return found

    return Mode()
