"""Whether a caching allocator has come to rest: near its limit it finds out step by step what does not fit."""


class Rest:
    """Told at the end of each step. None: there is no such allocator here."""

    def __init__(self, meter):
        self._meter = meter
        #: (bytes held, bytes ever asked for, retries) at the end of each step.
        self._ends = []

    def step_done(self):
        reserved = self._meter.reserved()
        if reserved is not None:
            self._ends.append((*reserved, self._meter.retries()))

    def clear(self):
        del self._ends[:]

    def quiet_steps(self):
        """Steps at the end in which nothing was asked of the driver, and the cache was not given back."""
        if not self._ends:
            return None
        marks = [end[1:] for end in self._ends]
        return sum(1 for mark in marks if mark == marks[-1]) - 1

    def creep(self):
        """Bytes by which what is held rises with each step, in the later half of them; None: too few to tell."""
        middle = len(self._ends) // 2
        steps = len(self._ends) - 1 - middle
        return (self._ends[-1][0] - self._ends[middle][0]) / steps if steps >= 2 else None
