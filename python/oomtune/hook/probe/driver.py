"""Drives the user's training loop: hands it batches of the sizes that the worker asks for, and measures each.

The loop itself is not touched. It asks for its next batch as always, and that is where the hook waits for the worker,
books what the steps since then cost, and in the end leaves the process.
"""

from __future__ import annotations

import gc
import threading
import weakref

from ..report.exceptions import swallowed
from ..report.training_loop import describe
from ..watch.loader import own_batch
from ..watch.memory import find_memory
from .at_call import AtCall, speaks_of_loaders
from .phases import FORWARD_BACKWARD, LOAD, OPTIMIZER, OTHER
from .rewind import Rewind
from .rounds import Candidates, Pace, Rounds
from .samples import Feed, Unsuitable
from .trial import ProbeRequest, Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..instruments import Instruments
    from ..types import Loader, Message
    from ..watch.loader import LoopIterator


#: Optimizer steps of a script that has not asked a loader, though it speaks of some, after which sizes are set at the model's call.
UNASKED = 4
#: Optimizer steps that tell whether a size fits: the first makes the optimizer's state, the second trains with it.
FEWEST_STEPS = 2


class Driver:
    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._torch = instruments.torch
        self._gate = instruments.gate
        self.state = "waiting"
        self.trial = Trial(instruments)
        self._rounds = Rounds()
        self._rewind = Rewind(instruments.optimizers.identities, self._loop_over)
        self._feed = Feed(instruments)
        self._candidates = Candidates(instruments, self._feed.knows)
        self._iterator: weakref.ref[LoopIterator] | None = None
        self._pace = Pace()
        self._asking: int | None = None
        #: Batches are asked for by another thread than the one that trains, ahead of it.
        self._apart = False
        self._at_call = AtCall(instruments, self)
        self._at_call.watch()

    # -- what loader.LoopIterator asks

    def watches(self, loader: Loader) -> bool:
        return self.state != "released"

    def keeps_out(self, iterator: LoopIterator) -> bool:
        return self.state == "released" or not self._candidates.may_change(iterator.loader)

    def takes(self, iterator: LoopIterator) -> bool:
        if self.state == "released" or self._at_call.on:
            return False
        return self._candidates.takes(iterator.loader, self.state == "driving")

    def next(self, iterator: LoopIterator) -> Any:
        if self.state == "waiting":
            self._begin(iterator)
        self._asked(iterator)
        if not self._apart:
            self._settle()
        if self.state != "driving" or self._candidates.rejected(iterator.loader):
            return iterator.next_real()
        return self._hand(iterator)

    @property
    def micro_batch(self) -> int | None:
        return None if self.trial.probe is None else self.trial.probe.micro_batch

    # -- what AtCall asks, and tells, of a loop that has no loader

    def begins_at_call(self) -> bool:
        """Whether the model is called in a training loop that asks no loader."""
        if self.state != "waiting":
            return False
        if not self._candidates.any and not speaks_of_loaders():
            return True
        return self._rounds.unasked >= UNASKED

    @property
    def backwards(self) -> int:
        return self._rounds.backwards

    @property
    def begins_round(self) -> bool:
        return self._rounds.batches == 0 or self._rounds.stepped

    def called(self) -> None:
        """The model is called with a batch that the script has made."""
        if self.state == "waiting":
            self._begin(None)
        self._rounds.asked()
        self._rewind.asked()
        self._gate.asked()
        if self.trial.measurement is not None:
            if self._rounds.stepped:
                self._book()
            self._check_hindrance()
            self.check_swallowed()
        self._settle()
        if self.state == "driving":
            self._instruments.cut.saw(self.trial.size)
            self.trial.hand()
            self._handed()

    # -- what the optimizer and backward watchers tell

    def backward(self) -> None:
        self._rewind.goes_on()
        if self._gate.own_accumulation > 1 and self._plain():
            self._rewind.worked()
        self._rounds.backwards += 1
        self._check_hindrance()

    def before_step(self) -> None:
        if self.trial.measurement is not None and not self._instruments.backward.running:
            self.trial.measurement.gradients_are_made()
            self.trial.enter(OPTIMIZER)

    def forward_backward_again(self) -> None:
        self.trial.enter(FORWARD_BACKWARD)

    def after_step(self) -> None:
        if self.state == "waiting":
            self._candidates.trained()
        in_backward = self._instruments.backward.running
        if not in_backward:
            self.trial.enter(OTHER)
        self._rounds.step(in_backward)
        if self.state == "driving":
            self._instruments.cut.stepped()
        if self._gate.engaged and self._gate.own_accumulation > 1:
            # The script accumulates by itself: its gradients stay resident without any help.
            self.trial.set_group()
        self._check_hindrance()
        if self._plain() and not self._instruments.optimizers.awaited():
            # A loop in which another optimizer is yet to step may be an inner one.
            self._rewind.stepped()
        if self._at_call.on:
            if self._at_call.stepped() and self._rounds.batches:
                self._book()
                self._settle()
            return
        self._apart = self._asking not in (None, threading.get_ident())
        if self._apart and self.trial.measurement is not None:
            self._book()
            self._settle()
            self._start_step()

    def _plain(self) -> bool:
        """Whether the loop may end by itself: frameworks were told not to."""
        return self.state == "driving" and self._hook.entry == "plain"

    def ending(self) -> None:
        """The loop ends by itself: because it ran out of memory and that was caught, perhaps. Else what was measured of
        the first size is told, however short the loop was; of others a new process measures more."""
        measurement = self.trial.measurement
        if measurement is None:
            return
        if self._rounds.batches and self.trial.refused():
            self._hook.link.send(swallowed(self.micro_batch))
            return
        if self._rounds.stepped and not self._apart:
            self._book()
        if self.trial.first and measurement.skip == 0 and measurement.steps >= FEWEST_STEPS:
            self._asked_for()
            self._hook.link.send({**self.trial.measured(), "short": True})

    def _asked_for(self) -> None:
        """The probe is known."""

    # -- the conversation with the worker

    def _begin(self, iterator: LoopIterator | None) -> None:
        """None: the loop asks no loader, and its model is called for the first time."""
        hook = self._hook
        self.trial.memory = self._instruments.memory = find_memory(self._torch)
        if not hook.link.open():
            hook.leave(75)
        if hook.lives is not None:
            hook.lives.told()
        if iterator is None:
            self._begin_at_call()
            self._describe_call()
        else:
            self._at_call.release()
            self._describe(iterator)
        if hook.trainer_accumulation:
            self._gate.own_accumulation = hook.trainer_accumulation
        self.state = "driving"
        hook.driving = True
        # Between sizes garbage has to go; what the imports left need not be looked through each time.
        gc.collect()
        gc.freeze()

    def _begin_at_call(self) -> None:
        self._hook.by_hand = True
        self._hook.phase = "train"
        self._gate.start_loop()
        self._at_call.begin()

    def _describe_call(self) -> None:
        suitable = self._at_call.suitable
        self._hook.link.send(describe(self._instruments, None, None, self._at_call.rows if suitable else None))
        if not suitable:
            self._hook.give_up(
                "the script trains without a torch DataLoader, and what its model is called with has no row for each sample"
            )

    def _describe(self, iterator: LoopIterator) -> None:
        hook = self._hook
        try:
            source = self._feed.source(iterator)
            hook.link.send(describe(self._instruments, iterator.loader, source))
        except Unsuitable as reason:
            hook.link.send(describe(self._instruments, iterator.loader, None))
            hook.give_up(str(reason))

    def _settle(self) -> None:
        """Waits for the worker wherever it is its turn."""
        while self.state == "driving" and (self.trial.probe is None or self.trial.complete):
            if self.trial.probe is not None:
                self._hook.link.send(self.trial.measured())
            self._take(self._hook.link.receive())

    def _take(self, answer: Message | None) -> None:
        hook = self._hook
        kind = answer.get("t") if answer else None
        if answer is None or kind is None:
            hook.leave(75)
        elif kind == "end":
            hook.goodbye("end", "")
            hook.leave(0)
        elif kind == "life":
            hook.leave(0)  # another takes its place
        elif kind == "go":
            self._release()
        elif kind == "more" and self.trial.measurement is not None:
            self.trial.look()
            self.trial.measurement.extend(max(1, int(answer.get("steps") or 1)))
        elif kind == "probe":
            self._feed.clear()
            self._new_step()
            before = None if self.trial.probe is None else self.trial.size
            self.trial.begin(ProbeRequest.asked(answer), self._apart, self._feed.variable)
            self._at_call.sized(before, self.trial.size)

    def _release(self) -> None:
        self.state = "released"
        self.trial.measurement = None
        self._rewind.disarm()
        self._feed.clear()
        self._gate.release()
        self._at_call.release()
        self._instruments.cut.release()
        self._hook.driving = False
        gc.unfreeze()
        self._instruments.rung.switch("off", False, False)

    # -- the loop's rounds

    def _asked(self, iterator: LoopIterator) -> None:
        self._rounds.asked()
        self._asking = threading.get_ident()
        if not self._pace.asked(iterator.loader):
            return
        self._rewind.asked()
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self._gate.start_loop()
        self._gate.asked()
        if self.trial.measurement is None or self._apart:
            return
        if self._rounds.stepped:
            self._book()
        else:
            self._check_bounds(iterator)
        self.check_swallowed()
        self.trial.enter(LOAD)

    def _book(self) -> None:
        self._new_step()
        if self._at_call.rounded():
            self.trial.running.skip += 1
        self.trial.step_done(self._apart)

    def _new_step(self) -> None:
        self._rounds.begin()
        self._instruments.backward.failures = 0

    def _hand(self, iterator: LoopIterator) -> Any:
        paced = self._pace.sets(iterator.loader)
        size = self.trial.size
        if not paced:
            ours, others = own_batch(self._pace.loader()), own_batch(iterator.loader)
            if ours and others:
                size = max(1, round(size * others / ours))
        batch = self._feed.batch(iterator, size, self.trial.running.turn())
        self._instruments.cut.saw(size)
        if paced:
            self.trial.hand()
            self._handed()
        return batch

    def _handed(self) -> None:
        if not self._apart:
            if self._rounds.batches == 0:
                self._start_step()
            self._rounds.batches += 1
            self.trial.enter(FORWARD_BACKWARD)

    def _start_step(self) -> None:
        self.trial.running.phases.step_starts()
        self.trial.enter(FORWARD_BACKWARD)
        self.trial.running.start_clock()

    # -- what goes wrong

    def _check_hindrance(self) -> None:
        if self.state in ("waiting", "driving"):
            reason = self._rounds.hindrance(
                self._candidates.any or self._at_call.on, len(self._instruments.optimizers) > 0
            )
            if reason is not None:
                self._hook.give_up(reason)

    def _check_bounds(self, iterator: LoopIterator) -> None:
        self._check_hindrance()
        if self._rounds.idle:
            self._candidates.reject(iterator.loader)
            self._feed.drop(iterator.loader)
            self._rounds.begin()
            self._pace = Pace()

    def check_swallowed(self) -> None:
        """The script caught an out-of-memory error and goes on: this size did not fit all the same."""
        batches = self._rounds.batches
        done = self._rounds.backwards - self._instruments.backward.failures
        # Refusals alone prove nothing: cuDNN tries a smaller workspace then.
        if self.trial.refused() and batches and done < batches:
            self._hook.link.send(swallowed(self.micro_batch))
            self._hook.leave(1)

    def _loop_over(self) -> NoReturn:
        self._hook.loop_over()
        self._hook.leave(0)
