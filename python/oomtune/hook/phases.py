"""Peaks of a training step, phase by phase: their maximum hides which of them grows with the batch."""

from .growth import rise

LOAD, FORWARD_BACKWARD, OPTIMIZER, OTHER = "load", "forward_backward", "optimizer", "other"


def _higher(one, other):
    if one is None:
        return other
    return one if other is None else max(one, other)


class Phases:
    """Told when a phase begins; keeps the highest of each. Bytes."""

    def __init__(self, meter, phase=LOAD, reset=True):
        self._meter = meter
        self.clear(phase, reset)

    def clear(self, phase=LOAD, reset=True):
        self._phase = phase
        self.allocated = {}
        self.total = None
        self.reserved = None
        self.resident = None
        self._starts = []
        if reset:
            self._meter.reset()

    def enter(self, phase):
        self._book()
        self._phase = phase
        self._meter.reset()

    def step_starts(self):
        """A new optimizer step's first batch was handed out: what is in use now stays in use throughout."""
        live = self._meter.live()
        self._starts.append(live)
        self.resident = _higher(self.resident, live)

    def growth(self):
        """Bytes by which each step leaves more behind than the one before; the first makes the optimizer's state."""
        return rise(self._starts[1:])

    def _book(self):
        total, allocated, reserved = self._meter.peaks()
        self.total = _higher(self.total, total)
        self.reserved = _higher(self.reserved, reserved)
        self.allocated[self._phase] = _higher(self.allocated.get(self._phase), allocated)

    def report(self):
        self._book()
        return {
            "total_bytes": self.total,
            "forward_backward_bytes": self.allocated.get(FORWARD_BACKWARD),
            "optimizer_bytes": self.allocated.get(OPTIMIZER),
            "reserved_bytes": self.reserved,
            "resident_bytes": self.resident,
            "growth_bytes_per_step": self.growth(),
        }
