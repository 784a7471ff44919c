"""Which of the script's loops is driven, which of its loaders sets the pace, and what it does from round to round."""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..instruments import Instruments
    from ..types import Loader


class Candidates:
    """`known(loader)` tells of the loaders whose batches were made already."""

    def __init__(self, instruments: Instruments, known: Callable[[Loader], bool]) -> None:
        self._instruments = instruments
        self._hook = instruments.hook
        self._known = known
        self._rejected: weakref.WeakSet[Loader] = weakref.WeakSet()
        self._forced: weakref.WeakSet[Loader] = weakref.WeakSet()
        #: The loader of the latest loop that was given its own batches.
        self._passed: weakref.ref[Loader] | None = None
        #: A loader was asked for a batch.
        self.any = False

    def takes(self, loader: Loader, driving: bool) -> bool:
        """Whether the loop that asks `loader` for a batch gets ours. `driving`: some loop does already."""
        self.any = True
        if loader in self._rejected:
            return False
        # A validation loop in the middle of training keeps its own batches, also where it shares the loader.
        if loader in self._forced or self._known(loader):
            taken = self._instruments.torch.is_grad_enabled()
        else:
            taken = self._instruments.training.likely()
        if taken:
            self._hook.phase = "train"
        elif driving:
            self._hook.phase = "eval"
        else:
            self._passed = weakref.ref(loader)
        return taken

    def may_change(self, loader: Loader) -> bool:
        """Whether a loop that began with its own batches is given ours from now on."""
        return loader in self._forced

    def reject(self, loader: Loader) -> None:
        self._rejected.add(loader)

    def rejected(self, loader: Loader) -> bool:
        return loader in self._rejected

    def trained(self) -> None:
        """A step was made although no loop was taken: the latest trains, with its model in evaluation mode, say."""
        passed = None if self._passed is None else self._passed()
        if passed is not None:
            self._forced.add(passed)


#: Calls of another loader in a row after which that one sets the pace.
OTHERS = 3


class Pace:
    def __init__(self) -> None:
        self._loader: weakref.ref[Loader] | None = None
        self._others = 0

    def loader(self) -> Loader | None:
        return None if self._loader is None else self._loader()

    def sets(self, loader: Loader) -> bool:
        return self.loader() is loader

    def asked(self, loader: Loader) -> bool:
        """A batch is asked of `loader`; whether that is a round of the loop."""
        if self.loader() is not None and not self.sets(loader):
            self._others += 1
            if self._others < OTHERS:
                return False
        if not self.sets(loader):
            self._loader = weakref.ref(loader)
        self._others = 0
        return True


#: Batches without any backward pass after which a loop is taken for no training loop.
NO_BACKWARD = 16
#: Batches without an optimizer step after which the loop cannot be driven.
NO_STEP = 512
#: Optimizer steps of a script that has asked no loader for a batch.
NO_LOADER = 8
#: Optimizer steps in a row on what a driven loop was given once.
NO_REQUEST = 128
#: Backward passes of a script that has made no optimizer.
NO_OPTIMIZER = 32


class Rounds:
    def __init__(self) -> None:
        #: Batches handed out since the last optimizer step, and backward passes meanwhile.
        self.batches = self.backwards = 0
        #: An optimizer stepped since the last batch was asked for.
        self.stepped = False
        #: Optimizer steps since then.
        self.unasked = 0

    def asked(self) -> None:
        self.unasked = 0

    def begin(self) -> None:
        """A new step: what came before does not count for it."""
        self.stepped = False
        self.batches = self.backwards = 0

    def step(self, in_backward: bool) -> None:
        """`in_backward`: an optimizer for each parameter steps as soon as its gradient is there; many make one step."""
        self.stepped = True
        if not in_backward:
            self.unasked += 1

    @property
    def idle(self) -> bool:
        """A loop goes round without training anything."""
        return self.batches >= NO_BACKWARD and self.backwards == 0

    def hindrance(self, loaders: bool, optimizers: bool) -> str | None:
        """Why the script cannot be driven; None as long as it may. `loaders`: whether a loader was asked at all."""
        if self.batches >= NO_STEP:
            return "no optimizer step in %d batches" % self.batches
        if not loaders and self.unasked >= NO_LOADER:
            return "the script trains without a torch DataLoader, and no call of a model with a batch was seen"
        if self.unasked >= NO_REQUEST:
            return "the script makes step after step without asking its DataLoader for another batch"
        if not optimizers and self.backwards >= NO_OPTIMIZER:
            return "the script trains without a torch optimizer"
        return None
