"""What the ranks that share one model's weights decide together: each of their forward and backward passes gathers weights,
and waits for ever where another rank makes one more or one less."""

import zlib

from .refusal import Mismatch, Uncuttable


class Alone:
    """A rank whose forward passes wait for nobody decides by itself."""

    together = False

    def most(self, value):
        return value

    def least(self, value):
        return value

    def any(self, flag):
        return flag

    def alike(self, names):
        """Whether all ranks have the same names."""
        return True

    def agreed(self, work):
        """The result of `work()`; where it raises Uncuttable on a rank, all of them raise that kind of it."""
        return work()


class Together(Alone):
    """All ranks of the job. Every method is an exchange of one number, which all of them have to make."""

    together = True

    def __init__(self, torch):
        self._torch = torch
        groups = torch.distributed
        on_devices = groups.get_backend() != "gloo" and torch.cuda.is_available()
        self._device = "cuda" if on_devices else "cpu"

    def most(self, value):
        number = self._torch.tensor([int(value)], device=self._device)
        self._torch.distributed.all_reduce(number, op=self._torch.distributed.ReduceOp.MAX)
        return int(number)

    def least(self, value):
        return -self.most(-value)

    def any(self, flag):
        return bool(self.most(bool(flag)))

    def alike(self, names):
        number = zlib.crc32(" ".join(names).encode())
        return self.most(number) == self.least(number)

    def agreed(self, work):
        result = failure = None
        try:
            result = work()
        except Uncuttable as found:
            failure = found
        worst = self.most(0 if failure is None else failure.severity)
        if failure is not None and failure.severity == worst:
            raise failure
        if worst:
            raise (Mismatch if worst == Mismatch.severity else Uncuttable)("another rank cannot cut it")
        return result
