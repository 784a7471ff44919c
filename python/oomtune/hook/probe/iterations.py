"""Follows the script's training loop: which loop it is, which of its loaders leads, what happens in each iteration."""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..instrumentation import Instrumentation
    from ..types import Loader


class LoopCandidates:
    """Which loops get batches from the worker. `known(loader)`: whether the loader has got such batches already."""

    def __init__(self, instrumentation: Instrumentation, known: Callable[[Loader], bool]) -> None:
        self._instrumentation = instrumentation
        self._hook = instrumentation.hook
        self._known = known
        self._rejected: weakref.WeakSet[Loader] = weakref.WeakSet()
        self._forced: weakref.WeakSet[Loader] = weakref.WeakSet()
        #: The loader of the latest loop that got its own batches.
        self._passed: weakref.ref[Loader] | None = None
        #: Any loader was asked for a batch.
        self.any = False

    def supplies(self, loader: Loader, probing: bool) -> bool:
        """Whether the loop that asks `loader` for a batch gets ours. `probing`: some loop does already."""
        self.any = True
        if loader in self._rejected:
            return False
        # A validation loop during training keeps its own batches, even if it shares the loader.
        if loader in self._forced or self._known(loader):
            taken = self._instrumentation.torch.is_grad_enabled()
        else:
            taken = self._instrumentation.training_mode.is_training() or (
                not probing and (self._trainer_begins() or self._begins_early())
            )
        if taken:
            self._hook.phase = "train"
        elif probing:
            self._hook.phase = "eval"
        else:
            self._passed = weakref.ref(loader)
        return taken

    def _trainer_begins(self) -> bool:
        """transformers' Trainer sets the training mode in its step only, when it has taken two batches: a model that was loaded
        is in evaluation mode until then. (Evaluations that come before have no optimizer.)"""
        instrumentation = self._instrumentation
        return (
            self._hook.entry == "trainer"
            and instrumentation.optimizers.exist()
            and instrumentation.torch.is_grad_enabled()
        )

    def _begins_early(self) -> bool:
        """In a process that sets sizes from the first batch on: a script may make its optimizer after that, or pyro for it."""
        instrumentation = self._instrumentation
        return (
            self._hook.settings.at_call
            and not instrumentation.optimizers.exist()
            and instrumentation.torch.is_grad_enabled()
        )

    def is_forced(self, loader: Loader) -> bool:
        """Whether a loop that began with its own batches gets ours from now on."""
        return loader in self._forced

    def reject(self, loader: Loader) -> None:
        self._rejected.add(loader)

    def rejected(self, loader: Loader) -> bool:
        return loader in self._rejected

    def latest_loop_trains(self) -> None:
        """A step was made although no loop got our batches: the latest loop trains (with its model in evaluation mode, say)."""
        passed = None if self._passed is None else self._passed()
        if passed is not None:
            self._forced.add(passed)


#: Requests to another loader in a row after which that one leads.
OTHERS = 3


class LeadingLoader:
    """Of loaders that are iterated together, the one whose batches count the iterations."""

    def __init__(self) -> None:
        self._loader: weakref.ref[Loader] | None = None
        self._others = 0

    def loader(self) -> Loader | None:
        return None if self._loader is None else self._loader()

    def is_leading(self, loader: Loader) -> bool:
        return self.loader() is loader

    def batch_requested(self, loader: Loader) -> bool:
        """`loader` is asked for a batch. Returns whether an iteration begins with that."""
        if self.loader() is not None and not self.is_leading(loader):
            self._others += 1
            if self._others < OTHERS:
                return False
        if not self.is_leading(loader):
            self._loader = weakref.ref(loader)
        self._others = 0
        return True


#: Batches without a backward pass after which a loop is no training loop.
NO_BACKWARD = 16
#: Batches without an optimizer step after which the search gives up.
NO_STEP = 512
#: Optimizer steps without any request to a loader after which it gives up.
NO_LOADER = 8
#: Optimizer steps in a row on one batch after which it gives up.
NO_REQUEST = 128
#: Backward passes without any optimizer after which it gives up.
NO_OPTIMIZER = 32
NO_CALL = "the script trains without a torch DataLoader, and no call of a model with a batch was seen"
STEPS_BY_ITSELF = "the script trains without a torch optimizer"


class Iterations:
    """Counts what the loop does between optimizer steps and requests for batches."""

    def __init__(self) -> None:
        #: Batches handed out, and backward passes, since the last optimizer step.
        self.batches = self.backwards = 0
        #: An optimizer stepped since the last batch was asked for.
        self.stepped = False
        #: Optimizer steps since then.
        self.steps_without_request = 0

    def batch_requested(self) -> None:
        self.steps_without_request = 0

    def begin_step(self) -> None:
        """Resets the counts for a new step."""
        self.stepped = False
        self.batches = self.backwards = 0

    def optimizer_stepped(self, in_backward: bool) -> None:
        """`in_backward`: one of many optimizers, each of which steps one parameter in the backward pass."""
        self.stepped = True
        if not in_backward:
            self.steps_without_request += 1

    @property
    def idle(self) -> bool:
        """The loop iterates without training anything."""
        return self.batches >= NO_BACKWARD and self.backwards == 0

    def why_unsuitable(self, loaders: bool, optimizers: bool) -> str | None:
        """Why the script's batch sizes cannot be set; None as long as they may be. `loaders`: a loader was asked for a batch;
        `optimizers`: there is one."""
        if self.batches >= NO_STEP:
            return "no optimizer step in %d batches" % self.batches
        if not loaders and self.steps_without_request >= NO_LOADER:
            return NO_CALL
        if self.steps_without_request >= NO_REQUEST:
            return "the script makes step after step without asking its DataLoader for another batch"
        if not optimizers and self.backwards >= NO_OPTIMIZER:
            return STEPS_BY_ITSELF
        return None

    def why_unseen(self, optimizers: bool) -> str | None:
        """Why nothing was seen to be set in a script without a loader that has ended; None: it has trained nothing."""
        if self.steps_without_request:
            return NO_CALL
        return STEPS_BY_ITSELF if self.backwards and not optimizers else None
