"""Which steps brought shapes of inputs that no step before had: for each a library may compile kernels, and keep them."""

from __future__ import annotations

from ..watch.batch_tree import leaves
from .step_phases import ENOUGH, rise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class InputShapes:
    def __init__(self) -> None:
        self._seen: set[tuple[tuple[int, ...], ...]] = set()
        self._brings_new = False
        #: Of each step that counts, whether it brought new shapes.
        self._steps: list[bool] = []

    def note(self, inputs: Any) -> None:
        """In the step that is about to begin, or has begun, a model sees these."""
        shapes = tuple(tuple(leaf.shape) for leaf in leaves(inputs) if hasattr(leaf, "grad_fn"))
        self._brings_new = self._brings_new or shapes not in self._seen
        self._seen.add(shapes)

    def step_done(self) -> None:
        self._steps.append(self._brings_new)
        self._brings_new = False

    def clear(self) -> None:
        """The steps so far do not count; their shapes are known all the same."""
        self._steps = []

    def explain(self, starts: list[int | None]) -> bool:
        """Whether memory rises with new shapes alone, of which there come fewer and fewer: by `starts`, the bytes in use at the
        start of each step, the steps with known ones leave nothing behind. The first makes the optimizer's state, and does not count."""
        if not any(self._steps[1:]):
            return False
        known = [0]
        for before, after, brings_new in zip(starts[1:], starts[2:], self._steps[1:]):
            if before is not None and after is not None and not brings_new:
                known.append(known[-1] + after - before)
        return len(known) > ENOUGH and not rise(known)
