"""Buffers that a forward pass changes: each micro-batch counts once for running statistics, and what does not depend on
the samples (the vectors of spectral normalisation) changes once a call."""

import contextlib


def compiled(module):
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


class Snapshot:
    """The values of some buffers, as they are now."""

    def __init__(self, places):
        self._values = [(owner, name, owner._buffers[name]) for owner, name in places if owner._buffers.get(name) is not None]
        self._values = [(owner, name, buffer, buffer.detach().clone()) for owner, name, buffer in self._values]

    def restore(self):
        for owner, name, buffer, value in self._values:
            owner._buffers[name] = buffer
            # Its version stays: a graph may hold the buffer, and needs none of its values.
            buffer.data.copy_(value)

    def changed(self, torch):
        """Places whose value is another now."""
        return [
            (owner, name)
            for owner, name, buffer, value in self._values
            if owner._buffers.get(name) is not buffer or not _same(torch, buffer, value)
        ]


def _same(torch, one, other):
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


class Buffers:
    """The buffers of one module; which of them move is seen at its first cut call."""

    def __init__(self, torch, module):
        self._torch = torch
        places = [(owner, name) for owner in module.modules() for name in owner._buffers]
        self._all = Snapshot(places)
        #: Running statistics of the samples, and others that move.
        self.statistics, self.others = [], []
        self.known = False
        self._copies = {}
        self._lends = not any(compiled(owner) for owner in module.modules())
        self._first = self._begun = None

    def learn(self):
        """After the first micro-batch's forward pass."""
        norm = self._torch.nn.modules.batchnorm._NormBase
        for owner, name in self._all.changed(self._torch):
            (self.statistics if isinstance(owner, norm) else self.others).append((owner, name))
        self._first = Snapshot(self.others) if self.others else None
        self._begun = self._only(self.others)
        self._all = None
        self.known = True

    def _only(self, places):
        chosen = Snapshot([])
        keys = {(id(owner), name) for owner, name in places}
        chosen._values = [entry for entry in self._all._values if (id(entry[0]), entry[1]) in keys]
        return chosen

    @property
    def waiting(self):
        """Whether it is yet to be seen if the others depend on the samples."""
        return self._first is not None

    def begun(self):
        """What the others were before the first micro-batch of the call in which they were learnt."""
        begun, self._begun = self._begun, None
        return begun

    def differ(self):
        """After the second micro-batch: whether what the others became depends on the samples."""
        first, self._first = self._first, None
        return bool(first.changed(self._torch))

    def snapshot(self):
        return Snapshot(self.others)

    @contextlib.contextmanager
    def aside(self, wanted=True):
        """What runs inside leaves them as they are."""
        if not wanted:
            yield
            return
        # Running statistics are only written to: copies take their place. Code that was compiled may hold on to the tensors.
        kept = Snapshot(self.others + ([] if self._lends else self.statistics))
        lent = self._lend() if self._lends else []
        try:
            yield
        finally:
            kept.restore()
            for owner, name, buffer in lent:
                owner._buffers[name] = buffer

    def _lend(self):
        lent = []
        for owner, name in self.statistics:
            buffer = owner._buffers[name]
            lent.append((owner, name, buffer))
            owner._buffers[name] = None if self._counts(owner, name) else self._copy(owner, name, buffer)
        return lent

    def _counts(self, owner, name):
        """Whether it counts forward passes, in a module that goes without: on a GPU each count is a kernel of its own."""
        return name == "num_batches_tracked" and type(owner).forward is self._torch.nn.modules.batchnorm._BatchNorm.forward

    def _copy(self, owner, name, buffer):
        copy = self._copies.get((id(owner), name))
        if copy is None or (copy.device, copy.dtype, copy.shape) != (buffer.device, buffer.dtype, buffer.shape):
            copy = self._copies[id(owner), name] = buffer.detach().clone()
        return copy
