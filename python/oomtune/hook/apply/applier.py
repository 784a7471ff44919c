"""Runs the user's training at the batch that was chosen: smaller batches through the loader, and a step of the
optimizer only when all micro-batches of one of the user's batches are through. Where nothing has to change, nothing
is: the loop gets the very iterator that it would have had."""

from __future__ import annotations

import weakref

from ..report.training_loop import DIFFERENCES
from ..watch.loader import own_batch
from .batches import CollatedPass, EarlyRebatch, FrameworkPass, InseparableRows, RowPass, WholePass, rebatch
from .by_hand import ByHand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..instruments import Instruments
    from ..types import Loader, Module, Pass
    from ..watch.loader import LoopIterator


class Applier:
    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._torch = instruments.torch
        self._gate = instruments.gate
        settings = instruments.hook.settings
        #: The loader's batches are ours to make.
        self._rebatches = "micro_batch" in settings.knobs and settings.micro_batch is not None
        self._micro = settings.micro_batch or 1
        cuts = "accumulation" in settings.knobs or "micro_batch" in settings.knobs
        self._accumulation = settings.accumulation if cuts else 1
        self._gate.own_accumulation = settings.own_accumulation
        self._passes: weakref.WeakKeyDictionary[LoopIterator, Pass] = weakref.WeakKeyDictionary()
        #: Loaders that were made to yield micro-batches themselves.
        self._regrouped: weakref.WeakSet[Loader] = weakref.WeakSet()
        #: The iterator that sets the pace, its loader, and that one's own batch.
        self._pace: weakref.ref[LoopIterator] | None = None
        self._pace_loader: weakref.ref[Loader] | None = None
        self._own: int | None = None
        self._by_hand = ByHand(instruments, self._micro) if self._rebatches else None
        self._early = EarlyRebatch(instruments)
        self._early.install(self._torch.utils.data.DataLoader)
        self._ready = not settings.knobs & {"amp", "checkpointing", "offload"}
        if not self._ready:
            # Where no loader tells of the loop, the first forward pass after the optimizer was made does.
            module = self._torch.nn.modules.module
            self._waiting: Any = module.register_module_forward_pre_hook(self._first_forward)

    @property
    def micro_batch(self) -> int | None:
        return self._hook.settings.micro_batch

    # -- what loader.LoopIterator asks

    def watches(self, loader: Loader) -> bool:
        self._instruments.telemetry.loop(loader)
        if self._by_hand is not None:
            self._by_hand.loaders = True
        if not self._ready and self._instruments.training.likely():
            self._prepare()
        return self._rebatches and "micro_batch" not in self._hook.native

    def keeps_out(self, iterator: LoopIterator) -> bool:
        return iterator not in self._passes and not self._instruments.training.likely()

    def takes(self, iterator: LoopIterator) -> bool:
        if iterator in self._passes:
            return True
        return self._instruments.training.likely()

    def next(self, iterator: LoopIterator) -> Any:
        current = self._passes.get(iterator)
        if current is None:
            current = self._passes[iterator] = self._open(iterator)
        paced = current.paced
        if paced:
            self._gate.asked()
        try:
            batch, micro = current.take()
        except InseparableRows:
            current = self._passes[iterator] = self._regroup(iterator)
            batch, micro = current.take()
        if paced and micro is not None:
            self._gate.handed(micro)
            self._instruments.modules.sync(self._gate.syncs)
        return batch

    def _first_forward(self, module: Module, inputs: Any) -> None:
        if len(self._instruments.optimizers) and self._torch.is_grad_enabled():
            self._prepare()

    def _prepare(self) -> None:
        """Autocast and the like need the models: once, before the first batch."""
        self._ready = True
        self._waiting.remove()
        self._instruments.apply_rung()

    def _open(self, iterator: LoopIterator) -> Pass:
        """The first batch of a pass over a training loader."""
        loader = iterator.loader
        if self._by_hand is not None:
            self._by_hand.rest()
        paced = self._sets_pace(iterator)
        if "accumulation" in self._hook.native:
            # Its loader was given micro-batches when the framework took it.
            self._gate.start_loop()
            self._gate.weighs = True
            self._hook.tell_cut()
            group = self._micro * self._accumulation
            return FrameworkPass(self._torch, iterator, group, self._micro, self._accumulation)
        wanted, micro = self._sizes(loader, paced)
        if self._hook.cut_choice()[0] == "model":
            return self._whole(iterator, wanted, paced)
        if loader in self._regrouped:
            if paced:
                self._gate.start_loop()
            return CollatedPass(iterator, wanted, micro, paced)
        own = own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            iterator.renew()
        if paced:
            self._gate.start_loop()
        if (wanted > micro or own is None) and not self._gate.engaged:
            self._gate.engage()
            self._hook.tell_cut()
            self._instruments.warn_of_differences()
        return RowPass(self._torch, iterator, wanted, micro, paced)

    def _whole(self, iterator: LoopIterator, wanted: int, paced: bool) -> Pass:
        """The loop gets its own batches: they are cut where the model is called."""
        instruments, loader = self._instruments, iterator.loader
        own = own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            iterator.renew()
        if paced and (wanted > self._micro or own is None) and not instruments.cut.engaged:
            instruments.cut.engage(self._micro, wanted)
            instruments.hook.tell_cut()
            instruments.warn_of_differences()
        return WholePass(self._torch, iterator, wanted, self._saw)

    def _saw(self, rows: int | None) -> None:
        self._instruments.cut.saw(rows)

    def _regroup(self, iterator: LoopIterator) -> Pass:
        """The loader yields batches that only its own collate function can make: it is asked for smaller ones."""
        loader, paced = iterator.loader, self._passes[iterator].paced
        wanted, micro = self._sizes(loader, paced)
        if loader not in self._regrouped and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted, micro)
            self._regrouped.add(loader)
        if loader not in self._regrouped:
            self._instruments.telemetry.warn("uncuttable", DIFFERENCES["uncuttable"])
            return RowPass(self._torch, iterator, wanted, wanted, paced)
        iterator.renew()
        return CollatedPass(iterator, wanted, micro, paced)

    def _sets_pace(self, iterator: LoopIterator) -> bool:
        """Of loaders that are gone through together (zip) the first one's batches count."""
        before = None if self._pace is None else self._pace()
        if before is not None and not before.finished and before.loader is not iterator.loader:
            return False
        if self._pace_loader is None or self._pace_loader() is not iterator.loader:
            self._gate.forget_loop(self._hook.settings.own_accumulation)
            self._pace_loader = weakref.ref(iterator.loader)
            self._own = self._early.own_batch(iterator.loader)
        self._pace = weakref.ref(iterator)
        return True

    def _sizes(self, loader: Loader, paced: bool) -> tuple[int, int]:
        """(samples of one of the user's batches, samples of a micro-batch)"""
        wanted = max(1, self._micro * self._accumulation // self._gate.own_accumulation)
        if paced:
            return wanted, self._micro
        own = self._early.own_batch(loader)
        if own is None or not self._own:
            return wanted, self._micro
        scaled = max(1, round(wanted * own / self._own))
        return scaled, max(1, -(-scaled * self._micro // wanted))

    # -- what the watchers tell

    def ending(self) -> None:
        pass

    def backward(self) -> None:
        pass

    def before_step(self) -> None:
        pass

    def forward_backward_again(self) -> None:
        pass

    def after_step(self) -> None:
        self._instruments.cut.stepped()
        self._instruments.telemetry.stepped()
