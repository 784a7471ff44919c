"""Drives the user's training loop: hands it batches of the sizes that the worker asks for, and measures each.

The loop itself is not touched. It asks for its next batch as always, and that is where the hook waits for the worker,
books what the steps since then cost, and in the end leaves the process.
"""

import gc
import threading
import weakref

from . import samples
from .candidates import Candidates
from .feed import Feed
from .meter import find_meter
from .pace import Pace
from .phases import FORWARD_BACKWARD, LOAD, OPTIMIZER, OTHER
from .report import swallowed
from .rewind import Rewind
from .rounds import Rounds
from .trial import Probe, Trial

#: Optimizer steps that tell whether a size fits: the first makes the optimizer's state, the second trains with it.
FEWEST_STEPS = 2


class Driver:
    def __init__(self, hook):
        self._hook = hook
        self._torch = hook.torch
        self._gate = hook.gate
        self.state = "waiting"
        self.trial = Trial(hook)
        self._rounds = Rounds()
        self._rewind = Rewind(hook.optimizers.identities, self._loop_over)
        self._feed = Feed(hook)
        self._candidates = Candidates(hook, self._feed.knows)
        self._port = None
        self._pace = Pace()
        self._asking = None
        #: Batches are asked for by another thread than the one that trains, ahead of it.
        self._apart = False

    # -- what loader.Port asks

    def watches(self, loader):
        return self.state != "released"

    def keeps_out(self, port):
        return self.state == "released" or not self._candidates.may_change(port.loader)

    def takes(self, port):
        return self.state != "released" and self._candidates.takes(port.loader, self.state == "driving")

    def next(self, port):
        if self.state == "waiting":
            self._begin(port)
        self._asked(port)
        if not self._apart:
            self._settle()
        if self.state != "driving" or self._candidates.rejected(port.loader):
            return port.next_real()
        return self._hand(port)

    @property
    def micro_batch(self):
        return None if self.trial.probe is None else self.trial.probe.micro_batch

    # -- what the optimizer and backward watchers tell

    def backward(self):
        self._rewind.goes_on()
        if self._gate.own_accumulation > 1 and self._plain():
            self._rewind.worked()
        self._rounds.backwards += 1
        self._check_hindrance()

    def before_step(self):
        if self.trial.record is not None and not self._hook.backward.running:
            self.trial.record.gradients_are_made()
            self.trial.enter(OPTIMIZER)

    def forward_backward_again(self):
        self.trial.enter(FORWARD_BACKWARD)

    def after_step(self):
        if self.state == "waiting":
            self._candidates.trained()
        in_backward = self._hook.backward.running
        if not in_backward:
            self.trial.enter(OTHER)
        self._rounds.step(in_backward)
        if self.state == "driving":
            self._hook.cut.stepped()
        if self._gate.engaged and self._gate.own_accumulation > 1:
            # The script accumulates by itself: its gradients stay resident without any help.
            self.trial.set_group()
        self._check_hindrance()
        if self._plain() and not self._hook.optimizers.awaited():
            # A loop in which another optimizer is yet to step may be an inner one.
            self._rewind.stepped()
        self._apart = self._asking not in (None, threading.get_ident())
        if self._apart and self.trial.record is not None:
            self._book()
            self._settle()
            self._start_step()

    def _plain(self):
        """Whether the loop may end by itself: frameworks were told not to."""
        return self.state == "driving" and self._hook.entry == "plain"

    def ending(self):
        """The loop ends by itself: because it ran out of memory and that was caught, perhaps. Else what was measured of
        the first size is told, however short the loop was; of others a new process measures more."""
        record = self.trial.record
        if record is None:
            return
        if self._rounds.batches and self.trial.refused():
            self._hook.link.send(swallowed(self.micro_batch))
            return
        if self._rounds.stepped and not self._apart:
            self._book()
        if self.trial.first and record.skip == 0 and record.steps >= FEWEST_STEPS:
            self._asked_for()
            self._hook.link.send({**self.trial.measured(), "short": True})

    def _asked_for(self):
        """The probe is known."""

    # -- the conversation with the worker

    def _begin(self, port):
        hook = self._hook
        self.trial.meter = hook.meter = find_meter(self._torch)
        if not hook.link.open():
            hook.leave(75)
        try:
            source = self._feed.source(port)
            hook.link.send(hook.describe_loop(port.loader, source))
        except samples.Unsuitable as reason:
            hook.link.send(hook.describe_loop(port.loader, None))
            hook.give_up(str(reason))
        if hook.trainer_accumulation:
            self._gate.own_accumulation = hook.trainer_accumulation
        self.state = "driving"
        hook.driving = True
        # Between sizes garbage has to go; what the imports left need not be looked through each time.
        gc.collect()
        gc.freeze()

    def _settle(self):
        """Waits for the worker wherever it is its turn."""
        while self.state == "driving" and (self.trial.probe is None or self.trial.complete):
            if self.trial.probe is not None:
                self._hook.link.send(self.trial.measured())
            self._take(self._hook.link.receive())

    def _take(self, answer):
        hook = self._hook
        kind = None if answer is None else answer.get("t")
        if kind is None:
            hook.leave(75)
        elif kind == "end":
            hook.bye("end", "")
            hook.leave(0)
        elif kind == "go":
            self._release()
        elif kind == "more" and self.trial.record is not None:
            self.trial.look()
            self.trial.record.extend(max(1, int(answer.get("steps") or 1)))
        elif kind == "probe":
            self._feed.clear()
            self._new_step()
            self.trial.begin(Probe.asked(answer), self._apart, self._feed.variable)

    def _release(self):
        self.state = "released"
        self.trial.record = None
        self._rewind.disarm()
        self._feed.clear()
        self._gate.release()
        self._hook.cut.release()
        self._hook.driving = False
        gc.unfreeze()
        self._hook.rung.switch("off", False, False)

    # -- the loop's rounds

    def _asked(self, port):
        self._rounds.asked()
        self._asking = threading.get_ident()
        if not self._pace.asked(port.loader):
            return
        self._rewind.asked()
        if self._port is None or self._port() is not port:
            self._port = weakref.ref(port)
            self._gate.start_loop()
        self._gate.asked()
        if self.trial.record is None or self._apart:
            return
        if self._rounds.stepped:
            self._book()
        else:
            self._check_bounds(port)
        self._check_swallowed()
        self.trial.enter(LOAD)

    def _book(self):
        self._new_step()
        self.trial.step_done(self._apart)

    def _new_step(self):
        self._rounds.begin()
        self._hook.backward.failures = 0

    def _hand(self, port):
        paced = self._pace.sets(port.loader)
        size = self.trial.size
        if not paced:
            ours, others = samples.own_batch(self._pace.loader()), samples.own_batch(port.loader)
            if ours and others:
                size = max(1, round(size * others / ours))
        batch = self._feed.batch(port, size, self.trial.record.turn())
        self._hook.cut.saw(size)
        if paced:
            self.trial.hand()
            self._handed()
        return batch

    def _handed(self):
        if not self._apart:
            if self._rounds.batches == 0:
                self._start_step()
            self._rounds.batches += 1
            self.trial.enter(FORWARD_BACKWARD)

    def _start_step(self):
        self.trial.record.phases.step_starts()
        self.trial.enter(FORWARD_BACKWARD)
        self.trial.record.start_clock()

    # -- what goes wrong

    def _check_hindrance(self):
        if self.state in ("waiting", "driving"):
            reason = self._rounds.hindrance(self._candidates.any, len(self._hook.optimizers) > 0)
            if reason is not None:
                self._hook.give_up(reason)

    def _check_bounds(self, port):
        self._check_hindrance()
        if self._rounds.idle:
            self._candidates.reject(port.loader)
            self._feed.drop(port.loader)
            self._rounds.begin()
            self._pace = Pace()

    def _check_swallowed(self):
        """The script caught an out-of-memory error and goes on: this size did not fit all the same."""
        batches = self._rounds.batches
        done = self._rounds.backwards - self._hook.backward.failures
        # Refusals alone prove nothing: cuDNN tries a smaller workspace then.
        if self.trial.refused() and batches and done < batches:
            self._hook.link.send(swallowed(self.micro_batch))
            self._hook.leave(1)

    def _loop_over(self):
        self._hook.loop_over()
        self._hook.leave(0)
