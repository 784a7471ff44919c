"""Runs the user's training at the batch that was chosen: smaller batches through the loader, and a step of the
optimizer only when all micro-batches of one of the user's batches are through. Where nothing has to change, nothing
is: the loop gets the very iterator that it would have had."""

import weakref

from . import samples, trees
from .gate import Micro


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
        #: The port that sets the pace, its loader, and that one's own batch.
        self._pace = None
        self._pace_loader = None
        self._own = None
        self._ready = False

    @property
    def micro_batch(self):
        return self._hook.settings.micro_batch

    # -- what loader.Port asks

    def watches(self, loader):
        self._hook.telemetry.loop(loader)
        return self._micro is not None and "micro_batch" not in self._hook.native

    def keeps_out(self, port):
        return port not in self._splits and not self._hook.training.likely()

    def takes(self, port):
        if port in self._splits:
            return True
        if not self._hook.training.likely():
            return False
        self._prepare()
        return True

    def next(self, port):
        split = self._splits.get(port)
        if split is None:
            split = self._splits[port] = self._open(port)
        paced = split.paced
        if paced:
            self._gate.asked()
        batch, micro = split.take()
        if paced:
            self._gate.handed(micro)
            self._hook.modules.sync(self._gate.syncs)
        return batch

    def _prepare(self):
        """Autocast and the like need the models: once, before the first batch."""
        if not self._ready:
            self._ready = True
            self._hook.apply_rung()

    def _open(self, port):
        """The first batch of a pass over a training loader."""
        loader = port.loader
        native = "accumulation" in self._hook.native
        paced = self._sets_pace(port)
        wanted, micro = self._sizes(loader, native, paced)
        own = samples.own_batch(loader)
        if own is not None and own != wanted and loader.batch_sampler is not None:
            _rebatch(self._torch, loader, wanted)
            port.renew()
        if paced:
            self._gate.start_loop()
        if wanted > micro and not self._gate.engaged:
            self._gate.engage()
            self._hook.warn_of_differences(loader)
        return Split(self._torch, port, wanted, micro, paced)

    def _sets_pace(self, port):
        """Of loaders that are gone through together (zip) the first one's batches count."""
        before = None if self._pace is None else self._pace()
        if before is not None and not before.finished and before.loader is not port.loader:
            return False
        if self._pace_loader is None or self._pace_loader() is not port.loader:
            self._gate.forget_loop(self._hook.settings.own_accumulation)
            self._pace_loader = weakref.ref(port.loader)
            self._own = samples.own_batch(port.loader)
        self._pace = weakref.ref(port)
        return True

    def _sizes(self, loader, native, paced):
        """(samples of one of the user's batches, samples of a micro-batch)"""
        if native:
            wanted = self._micro
        else:
            wanted = max(1, self._micro * self._accumulation // self._gate.own_accumulation)
        if paced:
            return wanted, self._micro
        own = samples.own_batch(loader)
        if own is None or not self._own:
            return wanted, self._micro
        scaled = max(1, round(wanted * own / self._own))
        return scaled, max(1, -(-scaled * self._micro // wanted))

    # -- what the watchers tell

    def backward(self):
        pass

    def before_step(self):
        if not self._ready and len(self._hook.optimizers):
            self._prepare()
        self._hook.telemetry.step_starts()

    def forward_backward_again(self):
        pass

    def after_step(self):
        self._hook.telemetry.stepped()


class Split:
    """One pass over a loader, its batches cut into micro-batches of at most `micro` samples, in order."""

    def __init__(self, torch, port, wanted, micro, paced):
        self._torch = torch
        self._port = weakref.ref(port)
        self._wanted = wanted
        self._micro = micro
        self.paced = paced
        self._number = -1
        self._batch = None
        self._rows = 0
        self._parts = []

    def take(self):
        if not self._parts:
            self._batch = self._port().next_real()
            self._number += 1
            self._rows = trees.rows(self._torch, self._batch, self._wanted) or 0
            self._parts = [(start, min(start + self._micro, self._rows)) for start in range(0, self._rows, self._micro)]
            self._count = max(1, len(self._parts))
        if len(self._parts) < 2 and self._count == 1:
            batch, self._batch, self._parts = self._batch, None, []
            return batch, Micro(self._number, 0, 1, 1.0)
        start, stop = self._parts.pop(0)
        batch = trees.cut(self._torch, self._batch, self._rows, start, stop)
        micro = Micro(self._number, self._count - len(self._parts) - 1, self._count, (stop - start) / self._rows)
        if not self._parts:
            self._batch = None
        return batch, micro


def _rebatch(torch, loader, size):
    """Makes the loader yield `size` samples a batch; in place, so that len(loader) is right from here on."""
    sampler = loader.batch_sampler
    drop_last = bool(getattr(sampler, "drop_last", loader.drop_last))
    if type(sampler).__name__ == "BatchSampler":
        batches = torch.utils.data.BatchSampler(sampler.sampler, size, drop_last)
    else:
        batches = Regrouped(sampler, size, drop_last)
    # DataLoader forbids to assign these after its construction; its own fields are what it reads.
    object.__setattr__(loader, "batch_sampler", batches)
    if loader.batch_size is not None:
        object.__setattr__(loader, "batch_size", size)
    object.__setattr__(loader, "_iterator", None)


class Regrouped:
    """A batch sampler's samples in its own order, in groups of another size."""

    def __init__(self, sampler, size, drop_last):
        self.sampler = sampler
        self.batch_size = size
        self.drop_last = drop_last

    def __iter__(self):
        group = []
        for indices in self.sampler:
            for index in indices:
                group.append(index)
                if len(group) == self.batch_size:
                    yield group
                    group = []
        if group and not self.drop_last:
            yield group

    def __len__(self):
        total = len(self.sampler) * (getattr(self.sampler, "batch_size", None) or 1)
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)

    def set_epoch(self, epoch):
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
