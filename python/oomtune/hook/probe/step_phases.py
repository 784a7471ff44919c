"""Peaks of a training step, phase by phase: their maximum would hide which of them grows with the batch."""

from __future__ import annotations

from .step_peaks import StepPeaks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..messages import Peaks
    from ..types import Memory


LOAD, FORWARD_BACKWARD, OPTIMIZER, OTHER = "load", "forward_backward", "optimizer", "other"


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else max(one, other)


class StepPhases:
    """Peaks of each phase, in bytes."""

    def __init__(self, memory: Memory, phase: str = LOAD, reset: bool = True) -> None:
        self._memory = memory
        self.total: int | None = None
        self.reserved: int | None = None
        self.resident: int | None = None
        self.allocated: dict[str, int | None] = {}
        self._steps = StepPeaks()
        #: Bytes in use at the start of each step.
        self.starts: list[int | None] = []
        self.clear(phase, reset)

    def clear(self, phase: str = LOAD, reset: bool = True) -> None:
        self._phase = phase
        self.allocated = {}
        self.total = None
        self.reserved = None
        self.resident = None
        self.starts = []
        self._steps.clear()
        if reset:
            self._memory.reset()

    def enter(self, phase: str) -> None:
        self._book()
        self._phase = phase
        self._memory.reset()

    def step_starts(self) -> None:
        """The first batch of an optimizer step was handed out: what is in use now stays in use throughout."""
        live = self._memory.live()
        self.starts.append(live)
        self.resident = _higher(self.resident, live)

    def step_ends(self, least: bool = False) -> None:
        self.enter(self._phase)
        self._steps.step_done(least)

    def growth(self) -> int | None:
        """Growth of the memory in use, in bytes per step; without the first step, which makes the optimizer's state."""
        return rise(self.starts[1:])

    def _book(self) -> None:
        total, allocated, reserved = self._memory.peaks()
        self.total = _higher(self.total, total)
        self.reserved = _higher(self.reserved, reserved)
        self.allocated[self._phase] = _higher(self.allocated.get(self._phase), allocated)
        self._steps.see(allocated)

    def peaks(self) -> Peaks:
        self._memory.measure()
        self._book()
        return {
            "total_bytes": self.total,
            "forward_backward_bytes": self.allocated.get(FORWARD_BACKWARD),
            "optimizer_bytes": self.allocated.get(OPTIMIZER),
            "reserved_bytes": self.reserved,
            "resident_bytes": self.resident,
            "growth_bytes_per_step": self.growth(),
            "spread_bytes": self._steps.spread(),
            "excess_bytes": self._steps.excess(),
        }


#: From this many values on, a rise must show in most of their pairs.
ENOUGH = 5
#: By this part of all pairs, rising pairs must outnumber falling ones.
CONCORDANT = 0.6
#: A rise must exceed the spread of single steps this many times: an allocator hands out blocks of several sizes.
BEYOND = 1.5


def rise(values: list[Any]) -> int | None:
    """Bytes per step, by the median slope over all pairs of values (the Theil-Sen estimator); 0: they do not rise; None: too
    few values."""
    if len(values) < 2 or None in values:
        return None
    slope, concordance = _fit(values)
    if len(values) >= ENOUGH and concordance < CONCORDANT:
        return 0
    if len(values) > 2:
        # What has stopped rising (a full cache, an allocator at rest) is no growth per step.
        later = values[len(values) // 2 :]
        slope = min(slope, _fit(later)[0])
        if len(values) >= ENOUGH and slope * (len(later) - 1) <= BEYOND * _spread(later, slope):
            return 0
    return max(0, int(slope))


def _spread(values: list[Any], slope: float) -> Any:
    """Highest minus lowest distance of the values from a line of that slope."""
    beside = [value - slope * step for step, value in enumerate(values)]
    return max(beside) - min(beside)


def _fit(values: list[Any]) -> tuple[float, float]:
    """(median slope, rising minus falling pairs as a part of all pairs: -1 to 1)."""
    slopes = sorted((later - before) / (j - i) for j, later in enumerate(values) for i, before in enumerate(values[:j]))
    middle = len(slopes) // 2
    median = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    balance = sum((slope > 0) - (slope < 0) for slope in slopes)
    return median, balance / len(slopes)
