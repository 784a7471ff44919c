"""Runs the user's training with the micro-batch that was chosen: cuts batches at the model's call or at the loader, and lets
the optimizer step only after the last micro-batch of a batch. If nothing needs to change, the loop gets the iterator that it
would have had."""

from __future__ import annotations

import weakref

from ..report.training_loop import DIFFERENCES
from ..watch.loader import own_batch, sample_count
from .loaderless import LoaderlessLoops
from .micro_batches import (
    CollatedBatches,
    EarlyRebatch,
    FrameworkBatches,
    InseparableRows,
    SlicedBatches,
    WholeBatches,
    rebatch,
)
from .pending_rung import PendingRung

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instrumentation import Instrumentation
    from ..types import Batches, Loader
    from ..watch.loader import LoaderIterator


class ApplyController:
    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._torch = instrumentation.torch
        self._accumulator = instrumentation.accumulator
        settings = instrumentation.hook.settings
        #: The hook makes the loader's batches.
        self._rebatches = "micro_batch" in settings.knobs and settings.micro_batch is not None
        self._micro = settings.micro_batch or 1
        cuts = "accumulation" in settings.knobs or "micro_batch" in settings.knobs
        self._accumulation = settings.accumulation if cuts else 1
        #: The script's own flags make micro-batches of its batches, which is still to be told.
        self._cut_by_flags = not cuts and settings.accumulation > settings.own_accumulation
        self._accumulator.own_accumulation = settings.own_accumulation
        self._batches: weakref.WeakKeyDictionary[LoaderIterator, Batches] = weakref.WeakKeyDictionary()
        #: Loaders that yield micro-batches themselves by now.
        self._regrouped: weakref.WeakSet[Loader] = weakref.WeakSet()
        #: The iterator that leads (see _leads), its loader, and that loader's own batch.
        self._leading: weakref.ref[LoaderIterator] | None = None
        self._leading_loader: weakref.ref[Loader] | None = None
        self._own: int | None = None
        self._loaderless = LoaderlessLoops(instrumentation, self._micro) if self._rebatches else None
        self._early = EarlyRebatch(instrumentation)
        self._early.install(self._torch.utils.data.DataLoader)
        #: Of a job whose configuration is not recorded yet; None: nothing is to be measured.
        self._first = instrumentation.first_steps
        self._rung = PendingRung(instrumentation)

    @property
    def micro_batch(self) -> int | None:
        if self._first is not None:
            return self._first.batch
        return self._hook.settings.micro_batch

    # -- called by LoaderIterator

    def wraps(self, loader: Loader) -> bool:
        self._instrumentation.telemetry.loop_begins(loader)
        if self._first is not None:
            self._first.loop_begins(loader)
        if self._loaderless is not None:
            self._loaderless.loaders = True
        if self._rung.pending and self._instrumentation.training_mode.is_training():
            self._rung.apply()
        if "micro_batch" in self._hook.native or self._cut_by_flags:
            self._look()
            return False
        return self._rebatches

    def _look(self) -> None:
        """A framework makes the micro-batches, if it makes several of a batch."""
        settings = self._hook.settings
        if settings.accumulation > settings.own_accumulation and self._hook.adds_up_by_itself:
            self._instrumentation.cut.compared.look(self._micro)

    def keeps_own_batches(self, iterator: LoaderIterator) -> bool:
        return iterator not in self._batches and not self._instrumentation.training_mode.is_training()

    def supplies(self, iterator: LoaderIterator) -> bool:
        if iterator in self._batches:
            return True
        return self._instrumentation.training_mode.is_training() or self._begins_early(iterator.loader)

    def _begins_early(self, loader: Loader) -> bool:
        """Whether this is the loader of the training, as a search has seen it, before the script has made its optimizer, or has set its
        model to training (transformers' Trainer does in its step, when the first batch is there). Its first batch is then cut as all
        others; where the loop is to go round for each micro-batch, it may be no training loop yet."""
        instrumentation, settings = self._instrumentation, self._hook.settings
        if not self._torch.is_grad_enabled() or self._hook.cut_choice()[0] != "model":
            return False
        seen = (self._early.own_batch(loader), sample_count(loader)) == (settings.own_batch, settings.own_samples)
        if instrumentation.optimizers.exist():
            return seen
        instrumentation.cut.calls.early |= seen
        return instrumentation.cut.calls.early

    def next(self, iterator: LoaderIterator) -> Any:
        current = self._batches.get(iterator)
        if current is None:
            current = self._batches[iterator] = self._open(iterator)
        leading = current.leading
        if leading:
            self._accumulator.batch_requested()
        try:
            batch, micro = current.take()
        except InseparableRows:
            current = self._batches[iterator] = self._regroup(iterator)
            batch, micro = current.take()
        if leading and micro is not None:
            self._accumulator.batch_handed_out(micro)
            self._instrumentation.modules.sync(self._accumulator.exchanges_gradients)
        return batch

    def _open(self, iterator: LoaderIterator) -> Batches:
        """Begins a pass over a training loader."""
        loader = iterator.loader
        if self._loaderless is not None:
            self._loaderless.unwatch()
        leading = self._leads(iterator)
        if "accumulation" in self._hook.native:
            # The loader was made to yield micro-batches when the framework took it.
            self._accumulator.start_pass()
            self._accumulator.weighs = True
            self._hook.report_cut()
            self._instrumentation.warn_of_micro_batches()
            self._look()
            group = self._micro * self._accumulation
            return FrameworkBatches(self._torch, iterator, group, self._micro, self._accumulation)
        wanted, micro = self._sizes(loader, leading)
        if self._hook.cut_choice()[0] == "model":
            return self._whole(iterator, wanted, leading)
        if loader in self._regrouped:
            if leading:
                self._accumulator.start_pass()
            return CollatedBatches(iterator, wanted, micro, leading)
        own = own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            iterator.renew()
        if leading:
            self._accumulator.start_pass()
        if (wanted > micro or own is None) and not self._accumulator.engaged:
            self._accumulator.engage()
            self._hook.report_cut()
            self._instrumentation.warn_of_differences()
        return SlicedBatches(self._torch, iterator, wanted, micro, leading)

    def _whole(self, iterator: LoaderIterator, wanted: int, leading: bool) -> Batches:
        """The loop gets its own batches, which are cut at the model's call."""
        instrumentation, loader = self._instrumentation, iterator.loader
        own = own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            iterator.renew()
        if leading and (wanted > self._micro or own is None) and not instrumentation.cut.engaged:
            instrumentation.cut.engage(self._micro, wanted, tokens=self._hook.settings.micro_batch_tokens)
            instrumentation.hook.report_cut()
            instrumentation.warn_of_differences()
        return WholeBatches(self._torch, iterator, wanted, self._saw)

    def _saw(self, rows: int | None) -> None:
        self._instrumentation.cut.note_batch_rows(rows)

    def _regroup(self, iterator: LoaderIterator) -> Batches:
        """The loader's batches cannot be sliced: makes it yield smaller ones by its own collate function."""
        loader, leading = iterator.loader, self._batches[iterator].leading
        wanted, micro = self._sizes(loader, leading)
        if loader not in self._regrouped and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted, micro)
            self._regrouped.add(loader)
        if loader not in self._regrouped:
            self._instrumentation.telemetry.warn("uncuttable", DIFFERENCES["uncuttable"])
            return SlicedBatches(self._torch, iterator, wanted, wanted, leading)
        iterator.renew()
        return CollatedBatches(iterator, wanted, micro, leading)

    def _leads(self, iterator: LoaderIterator) -> bool:
        """Whether this iterator leads: of loaders that are iterated together (zip), the first one's batches count."""
        before = None if self._leading is None else self._leading()
        if before is not None and not before.finished and before.loader is not iterator.loader:
            return False
        if self._leading_loader is None or self._leading_loader() is not iterator.loader:
            self._accumulator.forget_lookahead(self._hook.settings.own_accumulation)
            self._leading_loader = weakref.ref(iterator.loader)
            self._own = self._early.own_batch(iterator.loader)
        self._leading = weakref.ref(iterator)
        return True

    def _sizes(self, loader: Loader, leading: bool) -> tuple[int, int]:
        """(samples of one of the user's batches, samples of a micro-batch)"""
        wanted = max(1, self._micro * self._accumulation // self._accumulator.own_accumulation)
        own = self._early.own_batch(loader)
        if self._hook.settings.keeps_batches:
            # A loader that is gone over before or after the one that a search has seen may have smaller or larger batches.
            recorded, wanted = wanted, self._own or own or wanted
            if wanted != recorded and not self._hook.settings.keeps_unknown:
                self._instrumentation.telemetry.warn(
                    "own_batches", DIFFERENCES["own_batches"] % (wanted, recorded, self._micro)
                )
        if leading or own is None or not self._own:
            return wanted, self._micro
        scaled = max(1, round(wanted * own / self._own))
        return scaled, max(1, -(-scaled * self._micro // wanted))

    # -- called by the watchers

    def before_exit(self) -> None:
        pass

    def before_backward(self) -> None:
        if self._first is not None:
            self._first.before_backward()

    def before_step(self) -> None:
        self._instrumentation.checkpoint_end.before_step(self._instrumentation.telemetry.steps)
        if self._first is not None:
            self._first.before_step()

    def before_closure(self) -> None:
        pass

    def after_step(self) -> None:
        if self._cut_by_flags:
            self._cut_by_flags = False
            self._instrumentation.warn_of_micro_batches()
        self._instrumentation.cut.stepped()
        self._instrumentation.telemetry.stepped()
        if self._first is not None:
            self._first.after_step()
