"""Cuts the batches of a training loop that makes them by hand: no loader tells of them, the first call of a model does."""

# What is looked into is the script's own, and may be anything.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from ..cut.pytree import tree_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instruments import Instruments
    from ..types import Module


class ByHand:
    """`micro`: samples that may be in one call."""

    def __init__(self, instruments: Instruments, micro: int) -> None:
        self._instruments = instruments
        self._micro = micro
        self._calls = instruments.cut.calls
        self._calls.before = self._called
        #: A loader was asked for something: that it is no batch to train on is not known yet.
        self.loaders = False

    def rest(self) -> None:
        """A loader makes the batches."""
        self._calls.before = None

    def _called(self, module: Module, args: Any, kwargs: Any) -> None:
        if not self._instruments.active or not module.training or not self._calls.begins(module):
            return
        instruments, settings = self._instruments, self._instruments.hook.settings
        cut, wanted = instruments.cut, settings.wanted
        if instruments.hook.accumulates is not None:
            # A framework hands out the parts by a loader of its own.
            self.rest()
            return
        if not cut.engaged:
            other = settings.own_batch is not None and settings.own_batch != wanted
            if self.loaders and (other or settings.own_samples is not None):
                return
            if other:
                instruments.hook.cannot_make(settings.own_batch or 0, wanted)
            instruments.hook.by_hand = True
            if wanted <= self._micro:
                self.rest()
                return
            cut.engage(self._micro, wanted)
            instruments.hook.tell_cut()
            instruments.warn_of_differences()
        # The last batch may be shorter.
        rows = self._rows(args, kwargs, wanted)
        if rows is not None:
            cut.saw(rows)

    def _rows(self, args: Any, kwargs: Any, wanted: int) -> int | None:
        torch = self._instruments.torch
        found = tree_leaves(torch, (args, kwargs))
        tensors = [leaf for leaf in found if isinstance(leaf, torch.Tensor) and leaf.dim()]
        if any(wanted in tensor.shape[:2] for tensor in tensors):
            return wanted
        lengths = {int(tensor.shape[0]) for tensor in tensors}
        return min(lengths) if len(lengths) == 1 and min(lengths) < wanted else None
