"""Decisions of ranks that share one model's weights. Each forward and backward pass gathers weights from all ranks: if one
rank makes a pass more or less, the others wait for ever."""

from __future__ import annotations

import weakref
import zlib

from .fsdp import is_sharded
from .refusal import Mismatch, Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, TypeVar

    from ..types import Module, Torch

    Result = TypeVar("Result")


class OneRank:
    """A rank whose passes wait for no other decides alone."""

    together = False

    def max(self, value: int) -> int:
        return value

    def min(self, value: int) -> int:
        return value

    def any(self, flag: bool) -> bool:
        return flag

    def same(self, names: Iterable[str]) -> bool:
        """Whether all ranks have the same names."""
        return True

    def agreed(self, work: Callable[[], Result]) -> Result:
        """The result of `work()`. If it raises Uncuttable on one rank, all ranks raise that kind of it."""
        return work()


class AllRanks(OneRank):
    """All ranks of the job. Every method exchanges one number: all ranks must call it."""

    together = True

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        on_devices = torch.distributed.get_backend() != "gloo" and torch.cuda.is_available()
        self._device = "cuda" if on_devices else "cpu"

    def max(self, value: int) -> int:
        number = self._torch.tensor([value], device=self._device)
        self._torch.distributed.all_reduce(number, op=self._torch.distributed.ReduceOp.MAX)
        return int(number)

    def min(self, value: int) -> int:
        return -self.max(-value)

    def any(self, flag: bool) -> bool:
        return self.max(int(flag)) > 0

    def same(self, names: Iterable[str]) -> bool:
        number = zlib.crc32(" ".join(names).encode())
        return self.max(number) == self.min(number)

    def agreed(self, work: Callable[[], Result]) -> Result:
        try:
            result = work()
        except Uncuttable as failure:
            if failure.severity == self.max(failure.severity):
                raise
            raise Uncuttable("another rank cannot cut it") from failure
        worst = self.max(0)
        if worst:
            raise (Mismatch if worst == Mismatch.severity else Uncuttable)("another rank cannot cut it")
        return result


class ModuleRanks:
    """The ranks that decide how each module is cut: this one, or all that its weights are sharded between."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: By id of each module that was asked for.
        self._known: dict[int, tuple[weakref.ref[Any], OneRank]] = {}

    def of(self, module: Module) -> OneRank:
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            ranks = AllRanks(self._torch) if is_sharded(module.modules()) else OneRank()
            known = self._known[id(module)] = (weakref.ref(module), ranks)
        return known[1]
