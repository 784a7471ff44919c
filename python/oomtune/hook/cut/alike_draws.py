"""Random numbers that are the same for every sample: shows what a module makes of its samples although it draws in its forward pass."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..types import Tensor, Torch, Tree

#: Operators that draw numbers whatever their tensors hold. What else draws (dropout) shows in another run.
DRAWS = frozenset(
    (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_"),
    )
)


class AlikeDraws:
    """For runs of one module on some of `count` samples, the first on all of them: each sample gets what the first one drew then."""

    def __init__(self, torch: Torch, count: int) -> None:
        self._torch = torch
        self._count = count
        #: What the first run drew, in order.
        self._drawn: list[Tensor] = []
        self._first = True

    def run(self, forward: Callable[[], Tree]) -> Tree:
        drawn = iter(self._drawn)

        def alike(found: Tensor) -> None:
            if self._first:
                self._repeat(found, found.clone(), self._count)
                self._drawn.append(found.clone())
                return
            before = next(drawn, None)
            if before is not None and before.shape == found.shape:
                found.copy_(before)
            elif before is not None and before.shape[1:] == found.shape[1:] and before.dim():
                self._repeat(found, before, self._count)

        with _mode(self._torch, alike):
            output = forward()
        self._first = False
        return output

    def _repeat(self, found: Tensor, drawn: Tensor, count: int) -> None:
        """Fills `found` with what was drawn for the first of `count` samples."""
        each, left = divmod(len(drawn), count) if drawn.dim() else (0, 1)
        if left or not each or len(found) % each:
            return
        found.copy_(drawn[:each].repeat(len(found) // each, *[1] * (drawn.dim() - 1)))


def _mode(torch: Torch, alike: Callable[[Tensor], None]) -> Any:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ in DRAWS and isinstance(found, torch.Tensor):
                alike(found)
            return found

    return Mode()
