"""Runs the user's script at the configuration that was chosen, and cuts it short: training passes end after a few optimizer
steps, evaluations after some batches, the script where its second training pass begins. So it comes to its own evaluation,
generation and saving within seconds, and peaks are reported by phase."""

from __future__ import annotations

import functools
import time
import weakref

from ..apply.apply_controller import ApplyController
from ..probe.breakdown import MemoryBreakdown
from ..watch.world import world_size
from .evaluations import Evaluations
from .phase_calls import watch_generation, watch_modes, watch_saves
from .phase_peaks import EVAL, GENERATE, SAVE, TRAIN, PhasePeaks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..instrumentation import Instrumentation
    from ..messages import PhasePeak
    from ..types import Loader, Module
    from ..watch.loader import LoaderIterator


#: Optimizer steps and seconds of training in which an evaluation has to begin: scripts that evaluate every so many steps.
MOST_STEPS, MOST_SECONDS = 200, 60.0
#: Seconds for all of it.
MOST_IN_ALL = 600.0
#: Less growth than this part of the peak is not told.
WORTH_TELLING = 0.01
#: Batches in a row without a backward pass after which a loop is known to train nothing, and after which one ends that did.
IDLE, MOST_IDLE = 2, 512


class RehearsalController(ApplyController):
    def __init__(self, instrumentation: Instrumentation) -> None:
        super().__init__(instrumentation)
        settings = self._hook.settings
        self._least = max(3, settings.steps)
        self._peaks: PhasePeaks | None = None
        #: In use when the first batch was asked for.
        self._first_live: int | None = None
        #: Optimizer steps in all, in this pass, and at the end of which a pass ends.
        self._steps = self._pass_steps = 0
        self._limit = self._least
        self._passes: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        #: A pass has been cut short, with everything that is iterated beside it; one has ended, in whichever way.
        self._cut_short = self._ended = False
        #: Loaders whose batches were trained on.
        self._trained: weakref.WeakSet[Loader] = weakref.WeakSet()
        #: The latest that asked for a batch; None: no loader has been asked.
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._idle: weakref.WeakKeyDictionary[LoaderIterator, int] = weakref.WeakKeyDictionary()
        self._evaluations = Evaluations(self._room)
        #: Something but training was seen after the first step.
        self._seen = False
        self._looking_since: float | None = None
        self._began = 0.0
        self._reported = False
        self._nested = 0
        saving = functools.partial(self._within, SAVE)
        watch_modes(self._torch, self._switched)
        watch_saves(self._torch, saving)
        if self._hook.artifact_guard is not None:
            self._hook.artifact_guard.while_saving = saving

    # -- called by LoaderIterator

    def wraps(self, loader: Loader) -> bool:
        super().wraps(loader)
        return True

    def keeps_own_batches(self, iterator: LoaderIterator) -> bool:
        return False

    def supplies(self, iterator: LoaderIterator) -> bool:
        return True

    def next(self, iterator: LoaderIterator) -> Any:
        if self._instrumentation.optimizers.exist():
            self._begin()
            if time.monotonic() - self._began > MOST_IN_ALL:
                self.finish()
            self._latest = weakref.ref(iterator)
            if self._evaluates(iterator):
                self._next_evaluated(iterator)
            else:
                self._next_trained(iterator)
        try:
            return self._own_next(iterator)
        except StopIteration:
            if iterator in self._evaluations:
                self._evaluations.had_no_more(iterator)
            elif iterator in self._passes:
                self._ended = True
            raise

    def _own_next(self, iterator: LoaderIterator) -> Any:
        """As the job itself would get it."""
        applies = self._rebatches and "micro_batch" not in self._hook.native and iterator not in self._evaluations
        keeps = iterator.begun and super().keeps_own_batches(iterator)
        if applies and not keeps and super().supplies(iterator):
            return super().next(iterator)
        return iterator.next_real()

    # -- what the script does

    def _begin(self) -> PhasePeaks:
        if self._peaks is None:
            hook = self._hook
            hook.rehearsing = True
            self._peaks = PhasePeaks(self._memory())
            self._first_live = self._memory().live()
            self._began = self._began or time.monotonic()
            hook.connection.open()
        return self._peaks

    def _memory(self) -> Any:
        """Of the device that the script uses by now."""
        instrumentation = self._instrumentation
        instrumentation.memory = instrumentation.device_memory()
        return instrumentation.memory

    def _evaluates(self, iterator: LoaderIterator) -> bool:
        """Whether the loop that asks for a batch makes no gradients."""
        torch, mode = self._torch, self._instrumentation.training_mode
        if iterator in self._evaluations:
            return True
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return True
        if self._hook.entry == "trainer" and (self._steps == 0 or iterator.loader in self._trained):
            return False  # it sets the training mode in its step, and evaluates without gradients
        if iterator.loader in self._trained:
            return mode.is_evaluating() and not mode.trains_in_eval
        if not mode.is_training():
            return True
        return self._steps > 0 and self._idle.get(iterator, 0) >= IDLE

    def _next_trained(self, iterator: LoaderIterator) -> None:
        if iterator not in self._passes:
            self._passes.add(iterator)
            if self._ended or self._pass_steps >= self._limit:
                self._next_pass()
        idle = self._idle.get(iterator, 0)
        if self._cut_short or (self._pass_steps >= self._limit and idle == 0) or idle >= MOST_IDLE:
            self._cut_short = self._ended = iterator.finished = True
            raise StopIteration
        self._enter(TRAIN)
        self._idle[iterator] = idle + 1

    def _next_pass(self) -> None:
        """Another pass of the training begins: what comes after the first one has been seen, or the script evaluates more rarely."""
        if self._seen:
            self.finish()
        self._cut_short = self._ended = False
        self._pass_steps = 0
        self._limit *= 2
        self._looking_since = self._looking_since or time.monotonic()

    def _next_evaluated(self, iterator: LoaderIterator) -> None:
        self._enter(EVAL)
        peaks, memory = self._begin(), self._memory()
        now = memory.live()
        peak = peaks.book()
        if iterator not in self._evaluations:
            self._evaluations.begin(iterator, self._left_by_training(now))
            # It was taken for the training's next pass at first.
            self._ended = self._ended or iterator in self._passes
        if self._evaluations.ends(iterator, now, peak):
            iterator.finished = True
            raise StopIteration

    def _left_by_training(self, live: int | None) -> int | None:
        """What the training has left in memory besides gradients and optimizer state, which no batch size changes; None: unknown."""
        if live is None or self._first_live is None or self._peaks is None:
            return None
        instrumentation = self._instrumentation
        kept = MemoryBreakdown(self._torch, instrumentation.optimizers, instrumentation.modules, self._peaks.device)
        kept.see_gradients()
        state = kept.figures()["optimizer_state_bytes"]
        return max(0, live - self._first_live - (kept.gradient_bytes or 0) - (state or 0))

    def _room(self) -> int | None:
        """What the budget leaves above the peak of evaluations; None where ranks have to stay together, or there is no budget."""
        settings = self._hook.settings
        if world_size(self._torch) > 1 or settings.budget is None or self._peaks is None:
            return None
        return settings.budget - (self._peaks.highest.get(EVAL) or 0)

    def _enter(self, phase: str) -> None:
        """Phases inside of others (a generation in an evaluation) end before their outer one goes on."""
        if self._nested:
            return
        peaks = self._begin()
        if phase != peaks.phase:
            before, peak = peaks.phase, peaks.enter(phase)
            if before == EVAL:
                self._evaluations.left(peak)
            self._hook.phase = phase if phase != GENERATE else EVAL
            self._report(over=False)
        if phase != TRAIN:
            self._seen = self._seen or self._steps > 0

    def _within(self, phase: str, call: Callable[[], Any]) -> Any:
        if self._peaks is None:
            return call()
        before = self._peaks.phase
        self._enter(phase)
        self._nested += 1
        try:
            return call()
        finally:
            self._nested -= 1
            self._enter(before)

    def _switched(self, module: Module, training: bool) -> None:
        """A loop without a loader evaluates where it sets its model to evaluation mode."""
        if (
            self._peaks is not None
            and self._latest is None
            and self._instrumentation.training_mode.is_trained_module(module)
        ):
            self._enter(TRAIN if training else EVAL)

    # -- called by the watchers

    def before_backward(self) -> None:
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            self._trained.add(latest.loader)
            self._passes.add(latest)
            self._evaluations.forget(latest)  # its model is trained in evaluation mode
        for iterator in list(self._idle):
            self._idle[iterator] = 0
        super().before_backward()

    def before_step(self) -> None:
        if self._latest is None and self._seen and self._steps >= self._least:
            self.finish()  # a loop without a loader has come back to its training
        self._begin()
        if self._latest is None:
            self._enter(TRAIN)
        super().before_step()

    def after_step(self) -> None:
        super().after_step()
        self._steps += 1
        self._pass_steps += 1
        if self._steps == 1:
            watch_generation(self._instrumentation.modules.all(), functools.partial(self._within, GENERATE))
            if self._memory().device != self._begin().device:
                self._peaks = None  # it was not on its device yet
                self._begin()
        if self._latest is None and self._looking_since is None:
            self._looking_since = time.monotonic()
        since = self._looking_since
        if self._steps >= MOST_STEPS or (since is not None and time.monotonic() - since > MOST_SECONDS):
            self.finish()

    # -- its end

    def before_exit(self) -> None:
        self._report(over=True)
        if self._hook.artifact_guard is not None:
            self._hook.artifact_guard.remove_folders()

    def finish(self) -> None:
        """Everything that there is to see was seen: ends the process."""
        self.before_exit()
        self._hook.exit_process(0)

    def _report(self, over: bool) -> None:
        if self._peaks is None or self._reported:
            return
        self._reported = over
        # Where it is cut, or would be: what smaller sizes change depends on that.
        self._hook.report_cut()
        if over:
            self._peaks.book()
        self._hook.connection.send(
            {
                "t": "rehearsed",
                "phase": self._peaks.phase,
                "phases": [self._phase(*one) for one in self._peaks.highest.items()],
                "steps": self._steps,
                "over": over,
            }
        )

    def _phase(self, phase: str, highest: int | None) -> PhasePeak:
        evaluation = self._evaluations.largest if phase == EVAL else None
        more = self._evaluations.more_bytes if evaluation is not None else 0
        return {
            "phase": phase,
            "peak_bytes": highest,
            "whole_bytes": None if highest is None or more < WORTH_TELLING * highest else highest + more,
            "batches": None if evaluation is None else evaluation.batches,
            "of_batches": None if evaluation is None else evaluation.of,
            "batch": None if evaluation is None else evaluation.batch,
            "held_bytes": None if evaluation is None else evaluation.held,
        }
