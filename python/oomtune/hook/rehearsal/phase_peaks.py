"""Peaks of memory by what the script does: train, eval, generate, save."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import Memory


TRAIN, EVAL, GENERATE, SAVE = "train", "eval", "generate", "save"


class PhasePeaks:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.device = memory.device
        self.phase = TRAIN
        #: Highest use of the device in each phase, in bytes; a phase that is not there was not seen.
        self.highest: dict[str, int | None] = {}
        memory.reset()

    def enter(self, phase: str) -> int | None:
        """Another phase begins. Returns the most that was allocated since the last part of the one before began."""
        allocated = self.book()
        self.phase = phase
        return allocated

    def book(self) -> int | None:
        """Ends a part of the phase. Returns the most that was allocated in it."""
        total, allocated, _ = self._memory.peaks()
        before = self.highest.get(self.phase)
        self.highest[self.phase] = total if before is None or total is None else max(before, total)
        self._memory.reset()
        return allocated
