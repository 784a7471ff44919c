"""Gives the user's training loop batches of the sizes that the worker asks for, and measures each size.

The loop itself is not changed. When it asks for its next batch, the hook records what the steps since then cost, waits for
the worker, and in the end ends the process.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref

from ..apply.knobs import RungKnobs
from ..report.exceptions import caught_oom_message
from ..report.training_loop import describe
from ..watch.existing import set_apart
from ..watch.loader import batch_and_samples, own_batch
from .batch_factories import BatchFactories
from .batch_factory import UnsuitableLoader
from .batch_size_variables import BatchSizeVariables
from .call_resizer import CallResizer, mentions_loaders
from .iterations import Iterations, LeadingLoader, LoopCandidates
from .probe import Probe, ProbeRequest
from .reach import Reach
from .rewind import Rewind
from .step_phases import FORWARD_BACKWARD, LOAD, OPTIMIZER, OTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..instrumentation import Instrumentation
    from ..types import Loader, Message
    from ..watch.loader import LoaderIterator


#: If a script that mentions a loader makes this many optimizer steps without asking one, sizes are set at the model's call.
UNASKED = 4
#: The fewest optimizer steps that show whether a size fits: the first makes the optimizer's state, the second uses it.
FEWEST_STEPS = 2
WHOLE_BATCHES = (
    "the items of the data set are whole batches, and how many of them the DataLoader joins does not reach the model, which is "
    "called with %d rows all the same"
)


class ProbeController:
    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._torch = instrumentation.torch
        self._accumulator = instrumentation.accumulator
        self.state = "waiting"
        self.probe = Probe(instrumentation)
        self._iterations = Iterations()
        self._rewind = Rewind(instrumentation.optimizers.identities, self._loop_ended)
        self._factories = BatchFactories(instrumentation)
        self._candidates = LoopCandidates(instrumentation, self._factories.knows)
        self._iterator: weakref.ref[LoaderIterator] | None = None
        self._leading = LeadingLoader()
        #: Loops that are still to be left alone: in the process before they turned out to be no training.
        self._skipped = self._hook.settings.skipped_loops
        #: The batch size of the loader of the loop that seems to train, and the samples of its data set.
        self._told: tuple[int | None, int | None] = (None, None)
        #: A backward pass was made since that loop began.
        self._trains = False
        self._requesting_thread: int | None = None
        #: Another thread than the training one asks for the batches, ahead of it.
        self._prefetching = False
        #: The script's variables that hold its loader's batch size, if they are set with it.
        self._variables: BatchSizeVariables | None = None
        #: The loop has been given more batches than a pass over its loader has.
        self._past_end = False
        self._reach = Reach(instrumentation.torch, instrumentation.cut.calls)
        self._call_resizer = CallResizer(instrumentation, self)
        self._call_resizer.watch()
        instrumentation.cut.calls.early = self._hook.settings.at_call

    @property
    def beyond_end(self) -> bool:
        """Whether the loop goes on past where the script would have ended it, which then may raise what it never would: a schedule that refuses
        a step too many, an optimizer that is given its new parameters (of layers that learn from the third step on) once more."""
        return self._past_end or self._rewind.sent_back

    # -- called by LoaderIterator

    def wraps(self, loader: Loader) -> bool:
        return self.state != "released"

    def keeps_own_batches(self, iterator: LoaderIterator) -> bool:
        return self.state == "released" or not self._candidates.is_forced(iterator.loader)

    def supplies(self, iterator: LoaderIterator) -> bool:
        if self.state == "released" or self._call_resizer.on:
            return False
        supplies = self._candidates.supplies(iterator.loader, self.state == "probing")
        if supplies and self.state == "waiting" and self._skipped > 0:
            self._skipped -= 1
            return False  # its own batches, from now on
        return supplies

    def next(self, iterator: LoaderIterator) -> Any:
        self.probe.cycled.see(iterator)
        if self.state == "waiting":
            self._begin(iterator)
        self._batch_requested(iterator)
        if not self._prefetching:
            self._await_orders()
        if self.state != "probing" or self._candidates.rejected(iterator.loader):
            return iterator.next_real()
        return self._make_batch(iterator)

    @property
    def micro_batch(self) -> int | None:
        return None if self.probe.request is None else self.probe.request.micro_batch

    # -- called by CallResizer, for a loop without a loader

    def starts_at_call(self) -> bool:
        """Whether a training loop without a loader begins with this call of the model."""
        if self.state != "waiting":
            return False
        if self._hook.settings.at_call or (not self._candidates.any and not mentions_loaders()):
            return True
        self._hook.waited_for_loader = self._iterations.steps_without_request < UNASKED
        return not self._hook.waited_for_loader

    @property
    def backwards(self) -> int:
        return self._iterations.backwards

    @property
    def begins_step(self) -> bool:
        return self._iterations.batches == 0 or self._iterations.stepped

    def model_called(self) -> None:
        """The model is called with a batch that the script has made."""
        if self.state == "waiting":
            self._begin(None)
        self._iterations.batch_requested()
        self._rewind.batch_requested()
        self._accumulator.batch_requested()
        if self.probe.measurement is not None:
            if self._iterations.stepped:
                self._finish_step()
            self._check_suitable()
            self.check_caught_oom()
        self._await_orders()
        if self.state == "probing":
            self._instrumentation.cut.note_batch_rows(self.probe.size)
            self.probe.batch_handed_out()
            self._batch_handed_out()

    # -- called by the watchers of optimizers and backward passes

    def before_backward(self) -> None:
        self._trains = True
        self._call_resizer.backward()
        self._rewind.loop_continues()
        if self._accumulator.own_accumulation > 1 and self._loop_may_end():
            self._rewind.backward_done()
        self._iterations.backwards += 1
        self._check_suitable()

    def before_step(self) -> None:
        if self.probe.measurement is not None and not self._instrumentation.backward.running:
            self.probe.measurement.measure_gradients()
            self.probe.enter(OPTIMIZER)

    def before_closure(self) -> None:
        self.probe.enter(FORWARD_BACKWARD)

    def after_step(self) -> None:
        if self.state == "waiting":
            self._candidates.latest_loop_trains()
        in_backward = self._instrumentation.backward.running
        if not in_backward:
            self.probe.enter(OTHER)
        self._iterations.optimizer_stepped(in_backward)
        if self.state == "probing":
            self._instrumentation.cut.stepped()
        if self._accumulator.engaged and self._accumulator.own_accumulation > 1:
            # The script accumulates gradients itself: the hook need not.
            self.probe.set_group()
        self._check_suitable()
        if self._loop_may_end() and not self._instrumentation.optimizers.step_is_missing():
            # If another optimizer has yet to step, this loop may be an inner one.
            self._rewind.optimizer_stepped()
        if self._call_resizer.on:
            if self._call_resizer.stepped() and self._iterations.batches:
                self._finish_step()
                self._await_orders()
            return
        self._prefetching = self._requesting_thread not in (None, threading.get_ident())
        if self._prefetching and self.probe.measurement is not None:
            self._finish_step()
            self._await_orders()
            self._start_step()

    def _loop_may_end(self) -> bool:
        """Whether the loop may end by itself: frameworks' loops are set to run on."""
        return self.state == "probing" and self._hook.entry == "plain"

    def before_exit(self) -> None:
        """The loop has ended by itself. If the script caught an out-of-memory error, reports that; else what was measured of the
        first size, however short the loop was. Other sizes are measured again in a new process."""
        measurement = self.probe.measurement
        if measurement is None:
            return
        if self._iterations.batches and self.probe.oom_since_last_call():
            self._hook.connection.send(caught_oom_message(self.micro_batch))
            return
        if self._iterations.stepped and not self._prefetching:
            self._finish_step()
        if self.probe.first and measurement.skip == 0 and measurement.steps >= FEWEST_STEPS:
            self._set_request()
            self._hook.connection.send({**self.probe.measured_message(), "short": True})

    def why_unseen(self) -> str | None:
        """The script has ended, and trained where no size could be set: why. None: it trained nothing, or was about to be left alone for a
        few steps more."""
        if self.state != "waiting" or self._candidates.any or self._hook.waited_for_loader:
            return None
        return self._iterations.why_unseen(self._instrumentation.optimizers.exist())

    def _set_request(self) -> None:
        """For controllers whose first probe comes without an order."""

    # -- orders of the worker

    def _begin(self, iterator: LoaderIterator | None) -> None:
        """The training loop begins. `iterator` None: without a loader, at the first call of its model."""
        hook = self._hook
        self._connect()
        if iterator is None:
            self._begin_at_call()
            self._describe_call()
        else:
            self._call_resizer.release()
            if own_batch(iterator.loader) == 1:
                self._reach.watch()
            # If memory runs out while the loop is looked at, that is before its first batch: no size of it was tried.
            hook.phase = "load"
            self._describe(iterator)
            hook.phase = "train"
        if hook.trainer_accumulation:
            self._accumulator.own_accumulation = hook.trainer_accumulation
        self.state = "probing"
        hook.controlled = True
        # Garbage is collected between sizes: skip what is there by now, for speed, and with it the garbage of the imports (a
        # MiB of torch's): a run of the script trains beside that.
        set_apart()

    def _connect(self) -> None:
        """This process is the one that trains."""
        hook = self._hook
        self.probe.memory = self._instrumentation.memory = self._instrumentation.device_memory()
        if not hook.connection.open():
            hook.exit_process(75)
        if hook.fork_point is not None:
            hook.fork_point.training_begins()

    def _begin_at_call(self) -> None:
        self._hook.loaderless = True
        self._hook.phase = "train"
        self._accumulator.start_pass()
        self._call_resizer.begin()

    def _describe_call(self) -> None:
        suitable = self._call_resizer.suitable
        self._hook.connection.send(
            describe(self._instrumentation, None, None, self._call_resizer.rows if suitable else None)
        )
        if not suitable:
            self._hook.stop_unsuitable(
                "the script trains without a torch DataLoader, and what its model is called with has no row for each sample"
            )

    def _describe(self, iterator: LoaderIterator) -> None:
        hook = self._hook
        try:
            factory = self._factories.factory(iterator)
            own = own_batch(iterator.loader)
            if hook.settings.sets_variables and own is not None:
                self._variables = BatchSizeVariables(own, sys._getframe())
            hook.connection.send(
                describe(self._instrumentation, iterator.loader, factory, variables=bool(self._variables))
            )
        except UnsuitableLoader as reason:
            hook.connection.send(describe(self._instrumentation, iterator.loader, None))
            hook.stop_unsuitable(str(reason))

    def _await_orders(self) -> None:
        """Reports a complete probe, and waits for the worker's next order."""
        while self.state == "probing" and (self.probe.request is None or self.probe.complete):
            if self.probe.request is not None:
                self._hook.connection.send(self.probe.measured_message())
            self._handle(self._hook.connection.receive())

    def _handle(self, answer: Message | None) -> None:
        hook = self._hook
        kind = answer.get("t") if answer else None
        if answer is None or kind is None:
            hook.exit_process(75)
        elif kind == "end":
            hook.goodbye("end", "")
            hook.exit_process(0)
        elif kind == "life":
            hook.exit_process(0)  # another life takes its place
        elif kind == "go":
            self._stop_probing()
        elif kind == "more" and self.probe.measurement is not None:
            self.probe.snapshot_variables()
            self.probe.measurement.extend(max(1, int(answer.get("steps") or 1)))
        elif kind == "probe":
            self._factories.clear()
            self._new_step()
            before = None if self.probe.request is None else self.probe.size
            self.probe.begin(ProbeRequest.from_order(answer), self._prefetching, self._factories.variable_length)
            self._call_resizer.set_size(before, self.probe.size)
            if self._variables is not None:
                self._variables.set(self.probe.size, sys._getframe())

    def _stop_probing(self) -> None:
        self.state = "released"
        self.probe.end()
        self._rewind.disarm()
        self._factories.clear()
        self._accumulator.release()
        self._reach.unwatch()
        self._call_resizer.release()
        if self._variables is not None:
            self._variables.restore(sys._getframe())
        self._instrumentation.cut.release()
        self._hook.controlled = False
        gc.unfreeze()
        self._instrumentation.rung.switch(RungKnobs())

    # -- iterations of the loop

    def _batch_requested(self, iterator: LoaderIterator) -> None:
        self._iterations.batch_requested()
        self._past_end = iterator.past_end
        self._requesting_thread = threading.get_ident()
        self._check_is_training(iterator)
        if not self._leading.batch_requested(iterator.loader):
            return
        self._rewind.batch_requested()
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            if not self._trains:
                self._told = batch_and_samples(iterator.loader)
            self._accumulator.start_pass()
        self._accumulator.batch_requested()
        if self.probe.measurement is None or self._prefetching:
            return
        if self._iterations.stepped:
            self._finish_step()
        else:
            self._check_idle(iterator)
        self.check_caught_oom()
        self.probe.enter(LOAD)

    def _finish_step(self) -> None:
        self._new_step()
        rows = self._reach.step_done(self.probe.size)
        if rows is not None:
            self._hook.stop_unsuitable(WHOLE_BATCHES % rows)
        if self._call_resizer.iteration_done():
            self.probe.current.skip += 1
        self.probe.step_done(self._prefetching)

    def _new_step(self) -> None:
        self._iterations.begin_step()
        self._instrumentation.backward.failures = 0

    def _make_batch(self, iterator: LoaderIterator) -> Any:
        leading = self._leading.is_leading(iterator.loader)
        size, turn, part = self.probe.size, self.probe.current.varied_step(), 1.0
        ours = own_batch(self._leading.loader())
        if self.probe.counts_tokens and turn is not None:
            # As many short samples as one micro-batch may have, which is how much memory the number of samples takes by itself.
            size = max(size, ours or 0)
            part = (self.micro_batch or 1) / size
        if not leading:
            others = own_batch(iterator.loader)
            if ours and others:
                size = max(1, round(size * others / ours))
        elif not self._prefetching and self._factories.alone:
            rows = self.probe.last_rows(iterator.loader)
            if rows is not None:
                size, self.probe.current.ends_pass = rows, True
        self.probe.cycled.hand_out(iterator, size, self.probe.memory.device)
        batch = self._factories.batch(iterator, size, turn, part)
        self._instrumentation.cut.note_batch_rows(size)
        if not self._prefetching:
            self.note_inputs(batch)
        if leading:
            self.probe.batch_handed_out()
            self._batch_handed_out()
        return batch

    def note_inputs(self, inputs: Any) -> None:
        """The step sees these: a batch of a loader, or what a model is called with."""
        if self.probe.measurement is not None:
            self.probe.measurement.shapes.note(inputs)

    def _batch_handed_out(self) -> None:
        if not self._prefetching:
            if self._iterations.batches == 0:
                self._start_step()
            self._iterations.batches += 1
            self.probe.enter(FORWARD_BACKWARD)

    def _start_step(self) -> None:
        self.probe.current.phases.step_starts()
        self.probe.enter(FORWARD_BACKWARD)
        self.probe.current.start_clock()

    # -- failures

    def _check_suitable(self) -> None:
        if self.state in ("waiting", "probing"):
            reason = self._iterations.why_unsuitable(
                self._candidates.any or self._call_resizer.on,
                self._instrumentation.optimizers.exist(),
            )
            if reason is not None:
                self._hook.stop_unsuitable(reason)

    def _check_is_training(self, iterator: LoaderIterator) -> None:
        """Ends the process if another loop begins, and the one before has ended without a backward pass: it only looked at a batch or
        so, and what was told of its loader is not true of the training's."""
        if self._trains or self._iterator is None:
            return
        before, loader = self._iterator(), iterator.loader
        if before is iterator or (before is not None and not before.finished):
            return
        if self._told != batch_and_samples(loader):
            self._hook.goodbye(
                "other_loop", "a loop over a loader ended before anything was trained, and another one began"
            )
            self._hook.exit_process(0)
        if not self._leading.is_leading(loader):
            self._leading = LeadingLoader()

    def _check_idle(self, iterator: LoaderIterator) -> None:
        self._check_suitable()
        if self._iterations.idle:
            self._candidates.reject(iterator.loader)
            self._factories.drop(iterator.loader)
            self._iterations.begin_step()
            self._leading = LeadingLoader()

    def check_caught_oom(self) -> None:
        """Ends the process if the script caught an out-of-memory error and goes on: the size did not fit."""
        batches = self._iterations.batches
        done = self._iterations.backwards - self._instrumentation.backward.failures
        # Refusals alone prove nothing: cuDNN then retries with a smaller workspace.
        if self.probe.oom_since_last_call() and batches and done < batches:
            self._hook.connection.send(caught_oom_message(self.micro_batch))
            self._hook.exit_process(1)

    def _loop_ended(self) -> NoReturn:
        self._hook.report_loop_end()
        self._hook.exit_process(0)
