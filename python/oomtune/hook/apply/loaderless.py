"""Cuts the batches of a training loop without a DataLoader: the first call of its model shows that it has begun."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from ..cut.pytree import tree_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..types import Module


class LoaderlessLoops:
    """`micro`: the most samples in one call of the model."""

    def __init__(self, instrumentation: Instrumentation, micro: int) -> None:
        self._instrumentation = instrumentation
        self._micro = micro
        self._calls = instrumentation.cut.calls
        self._calls.before = self._before_call
        #: In which the samples of whole batches are: the second one has them with time first.
        self._dim = 0
        #: A loader was asked for a batch, perhaps to train on.
        self.loaders = False

    def unwatch(self) -> None:
        """The batches come from a loader after all."""
        self._calls.before = None

    def _before_call(self, module: Module, args: Any, kwargs: Any) -> None:
        if not self._instrumentation.active:
            return
        self._calls.early = self._calls.early or (module.training and self._begins_early(args, kwargs))
        if not self._calls.begins(module):
            return
        instrumentation, settings = self._instrumentation, self._instrumentation.hook.settings
        cut, wanted = instrumentation.cut, settings.wanted
        if instrumentation.hook.accumulates is not None and instrumentation.hook.cut_choice()[0] != "model":
            # A framework hands out the micro-batches itself.
            self.unwatch()
            return
        if not cut.engaged:
            other = settings.own_batch is not None and settings.own_batch != wanted
            if self.loaders and (other or settings.own_samples is not None):
                return
            if other:
                instrumentation.hook.stop_cannot_make(settings.own_batch or 0, wanted)
            instrumentation.hook.loaderless = True
            if wanted <= self._micro:
                self.unwatch()
                return
            cut.engage(self._micro, wanted, tokens=settings.micro_batch_tokens)
            instrumentation.hook.report_cut()
            instrumentation.warn_of_differences()
        # The last batch may be shorter.
        rows = self._rows(args, kwargs, wanted)
        if rows is not None:
            cut.note_batch_rows(rows)

    def _begins_early(self, args: Any, kwargs: Any) -> bool:
        """Whether a module is called with a batch of the size that a search has seen, before the script has made its optimizer."""
        own = self._instrumentation.hook.settings.own_batch
        if own is None or self.loaders or self._instrumentation.optimizers.exist():
            return False
        return self._rows(args, kwargs, own) == own

    def _rows(self, args: Any, kwargs: Any, wanted: int) -> int | None:
        torch = self._instrumentation.torch
        found = tree_leaves(torch, (args, kwargs))
        tensors = [leaf for leaf in found if isinstance(leaf, torch.Tensor) and leaf.dim()]
        if any(wanted in tensor.shape[:2] for tensor in tensors):
            self._dim = 0 if any(tensor.shape[0] == wanted for tensor in tensors) else 1
            return wanted
        lengths = {int(tensor.shape[self._dim]) for tensor in tensors if tensor.dim() > self._dim}
        return min(lengths) if len(lengths) == 1 and min(lengths) < wanted else None
