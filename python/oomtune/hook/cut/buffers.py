"""Buffers that a forward pass changes: each micro-batch counts once for running statistics, and what does not depend on
the samples (the vectors of spectral normalisation) changes once a call."""


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

    def snapshot(self, statistics=False):
        return Snapshot(self.others + (self.statistics if statistics else []))
