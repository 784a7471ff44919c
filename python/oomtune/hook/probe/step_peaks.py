"""The peak of each step by itself: the highest of a few says little where they differ from step to step (samples that are drawn
or cut at random, garbage that is freed now and then)."""

from __future__ import annotations

#: Steps that do not count: the first makes the optimizer's state, and may hold what is left of another size.
WARM_UP = 1
#: From so many others on they tell how they differ.
ENOUGH = 3
#: From so many others on the highest tell what is still to come.
TELLING = 5


class StepPeaks:
    """In bytes. None: not known here."""

    def __init__(self) -> None:
        self._now: int | None = None
        self._steps: list[int] = []

    def see(self, peak: int | None) -> None:
        if peak is not None:
            self._now = max(peak, self._now or 0)

    def step_done(self, least: bool = False) -> None:
        """`least`: it had smaller samples than the others, and counts only if it is the highest all the same."""
        if self._now is not None and not (least and self._now <= max(self._steps, default=0)):
            self._steps.append(self._now)
        self._now = None

    def clear(self) -> None:
        self._now = None
        self._steps = []

    def spread(self) -> int | None:
        """By how much the highest exceeds most others: a quarter may be of fewer samples."""
        steps = sorted(self._steps[WARM_UP:])
        return steps[-1] - steps[len(steps) // 4] if len(steps) >= ENOUGH else None

    def excess(self) -> int | None:
        """What steps to come may take beyond the highest. Where peaks vary without a bound the highest of five times as many steps
        exceeds the highest of these by about as much as that exceeds the third highest. But no more than the third highest
        exceeds the middle one: a single step that stands out, or steps of two kinds, tell of none that is higher."""
        steps = sorted(self._steps[WARM_UP:])
        if len(steps) < TELLING:
            return None
        highest, third, middle = steps[-1], steps[-3], steps[len(steps) // 2]
        return min(highest - third, third - middle)
