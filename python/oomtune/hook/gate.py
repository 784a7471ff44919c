"""Decides which calls of the user's loop count, when one batch of theirs is run as several micro-batches.

The loop goes round once for each micro-batch and calls step, zero_grad and the rest each time. All but those of the
last micro-batch are let pass without effect. Where the loop stands is told by the number of batches that it has asked
for, less those that it (or accelerate, or Lightning) fetched ahead.
"""

import weakref
from collections import deque


class Micro:
    """One part of a user's batch: `index` of `count`, worth `weight` of the batch's mean loss."""

    __slots__ = ("batch", "index", "count", "weight")

    def __init__(self, batch, index, count, weight):
        self.batch = batch
        self.index = index
        self.count = count
        self.weight = weight


class Gate:
    def __init__(self):
        self.engaged = False
        #: Another one gates (a framework accumulates by itself); gradients are weighed all the same.
        self.weighs = False
        #: Batches that the script itself makes one optimizer step of; corrected at the first step seen.
        self.own_accumulation = 1
        #: Optimizers of which a step was skipped: their gradients must not be zeroed before the step that counts.
        self._held = weakref.WeakSet()
        self._lookahead = None
        self._calls = 0
        self._backwards = 0
        self._handed = deque()
        self._dropped = 0

    def engage(self):
        self.engaged = True

    def release(self):
        self.engaged = False
        self._held.clear()

    def start_loop(self):
        """A new pass over the loader. What a broken-off pass left behind does not count."""
        self._calls = self._backwards = self._dropped = 0
        self._handed.clear()
        self._held.clear()

    def forget_loop(self, own_accumulation):
        """Another loop, over another loader: it need not be written like the one before."""
        self._lookahead = None
        self.own_accumulation = own_accumulation

    def asked(self):
        """The loop asked for a batch (and may be told that there is none)."""
        self._calls += 1

    def handed(self, micro):
        self._handed.append(micro)
        while len(self._handed) > 4096:
            self._handed.popleft()
            self._dropped += 1

    @property
    def current(self):
        """The micro-batch that the loop is working on; None before the first."""
        position = self._calls - 1 - (self._lookahead or 0) - self._dropped
        if not self._handed or position >= len(self._handed):
            return None
        return self._handed[max(position, 0)]

    @property
    def closed(self):
        if not self.engaged:
            return False
        micro = self.current
        if micro is None:
            return False
        return micro.index < micro.count - 1 or (micro.batch + 1) % self.own_accumulation != 0

    @property
    def ahead(self):
        """Batches that the loop fetches before it works on them."""
        return self._lookahead or 0

    @property
    def syncs(self):
        """Whether this micro-batch's gradients have to be exchanged between ranks."""
        return self._lookahead is None or not self.closed

    def backward(self):
        """A backward pass begins; returns the weight that its gradients get."""
        self._backwards += 1
        if not self.engaged and not self.weighs:
            return 1.0
        micro = self.current
        return 1.0 if micro is None else micro.weight

    def attempt(self, optimizer, closure=False):
        """The loop calls optimizer.step(). True: it may. `closure`: the backward pass is part of the step."""
        worked = min(self._calls, self._backwards + closure)
        if self._lookahead is None and worked:
            # Batches asked for, less backward passes done: those fetched ahead.
            self.own_accumulation = max(self.own_accumulation, worked)
            self._lookahead = self._calls - worked
        if self.closed:
            self._held.add(optimizer)
            return False
        return True

    def stepped(self, optimizer):
        self._held.discard(optimizer)

    def holds(self, optimizer):
        return optimizer in self._held

    def held(self):
        return list(self._held)
