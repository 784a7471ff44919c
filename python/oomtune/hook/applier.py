"""Runs the user's training at the batch that was chosen: smaller batches through the loader, and a step of the
optimizer only when all micro-batches of one of the user's batches are through. Where nothing has to change, nothing
is: the loop gets the very iterator that it would have had."""

import weakref

from . import samples
from .batches import Grouped, Parts, Split, Uncuttable, Whole, rebatch
from .loop import DIFFERENCES


class Applier:
    def __init__(self, hook):
        self._hook = hook
        self._torch = hook.torch
        self._gate = hook.gate
        settings = hook.settings
        self._micro = settings.micro_batch if "micro_batch" in settings.knobs else None
        splits = "accumulation" in settings.knobs or "micro_batch" in settings.knobs
        self._accumulation = settings.accumulation if splits else 1
        self._gate.own_accumulation = settings.own_accumulation
        self._splits = weakref.WeakKeyDictionary()
        #: Loaders that were made to yield micro-batches themselves.
        self._regrouped = weakref.WeakSet()
        #: The port that sets the pace, its loader, and that one's own batch.
        self._pace = None
        self._pace_loader = None
        self._own = None
        self._ready = not settings.knobs & {"amp", "checkpointing", "offload"}
        if not self._ready:
            # Where no loader tells of the loop, the first forward pass after the optimizer was made does.
            module = self._torch.nn.modules.module
            self._waiting = module.register_module_forward_pre_hook(self._first_forward)

    @property
    def micro_batch(self):
        return self._hook.settings.micro_batch

    # -- what loader.Port asks

    def watches(self, loader):
        self._hook.telemetry.loop(loader)
        if not self._ready and self._hook.training.likely():
            self._prepare()
        return self._micro is not None and "micro_batch" not in self._hook.native

    def keeps_out(self, port):
        return port not in self._splits and not self._hook.training.likely()

    def takes(self, port):
        if port in self._splits:
            return True
        return self._hook.training.likely()

    def next(self, port):
        split = self._splits.get(port)
        if split is None:
            split = self._splits[port] = self._open(port)
        paced = split.paced
        if paced:
            self._gate.asked()
        try:
            batch, micro = split.take()
        except Uncuttable:
            split = self._splits[port] = self._regroup(port)
            batch, micro = split.take()
        if paced:
            self._gate.handed(micro)
            self._hook.modules.sync(self._gate.syncs)
        return batch

    def _first_forward(self, module, inputs):
        if len(self._hook.optimizers) and self._torch.is_grad_enabled():
            self._prepare()

    def _prepare(self):
        """Autocast and the like need the models: once, before the first batch."""
        self._ready = True
        self._waiting.remove()
        self._hook.apply_rung()

    def _open(self, port):
        """The first batch of a pass over a training loader."""
        loader = port.loader
        paced = self._sets_pace(port)
        if "accumulation" in self._hook.native:
            # Its loader was given micro-batches when the framework took it.
            self._gate.start_loop()
            self._gate.weighs = True
            self._hook.tell_cut()
            group = self._micro * self._accumulation
            return Grouped(self._torch, port, group, self._micro, self._accumulation)
        wanted, micro = self._sizes(loader, paced)
        if self._hook.cut_choice()[0] == "model":
            return self._whole(port, wanted, paced)
        if loader in self._regrouped:
            if paced:
                self._gate.start_loop()
            return Parts(port, wanted, micro, paced)
        own = samples.own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            port.renew()
        if paced:
            self._gate.start_loop()
        if (wanted > micro or own is None) and not self._gate.engaged:
            self._gate.engage()
            self._hook.tell_cut()
            self._hook.warn_of_differences(loader)
        return Split(self._torch, port, wanted, micro, paced)

    def _whole(self, port, wanted, paced):
        """The loop gets its own batches: they are cut where the model is called."""
        hook, loader = self._hook, port.loader
        own = samples.own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted)
            port.renew()
        if paced and (wanted > self._micro or own is None) and not hook.cut.engaged:
            hook.cut.engage(self._micro, wanted)
            hook.tell_cut()
            hook.warn_of_differences(loader)
        return Whole(self._torch, port, wanted, hook.cut.saw)

    def _regroup(self, port):
        """The loader yields batches that only its own collate function can make: it is asked for smaller ones."""
        loader, paced = port.loader, self._splits[port].paced
        wanted, micro = self._sizes(loader, paced)
        if loader not in self._regrouped and loader.batch_sampler is not None:
            rebatch(self._torch, loader, wanted, micro)
            self._regrouped.add(loader)
        if loader not in self._regrouped:
            self._hook.telemetry.warn("uncuttable", DIFFERENCES["uncuttable"])
            return Split(self._torch, port, wanted, wanted, paced)
        port.renew()
        return Parts(port, wanted, micro, paced)

    def _sets_pace(self, port):
        """Of loaders that are gone through together (zip) the first one's batches count."""
        before = None if self._pace is None else self._pace()
        if before is not None and not before.finished and before.loader is not port.loader:
            return False
        if self._pace_loader is None or self._pace_loader() is not port.loader:
            self._gate.forget_loop(self._hook.settings.own_accumulation)
            self._pace_loader = weakref.ref(port.loader)
            self._own = self._hook.early.own_batch(port.loader)
        self._pace = weakref.ref(port)
        return True

    def _sizes(self, loader, paced):
        """(samples of one of the user's batches, samples of a micro-batch)"""
        wanted = max(1, self._micro * self._accumulation // self._gate.own_accumulation)
        if paced:
            return wanted, self._micro
        own = self._hook.early.own_batch(loader)
        if own is None or not self._own:
            return wanted, self._micro
        scaled = max(1, round(wanted * own / self._own))
        return scaled, max(1, -(-scaled * self._micro // wanted))

    # -- what the watchers tell

    def backward(self):
        pass

    def before_step(self):
        pass

    def forward_backward_again(self):
        pass

    def after_step(self):
        if self._hook.cut is not None:
            self._hook.cut.stepped()
        self._hook.telemetry.stepped()
