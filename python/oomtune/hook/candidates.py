"""Which loops over a loader are driven: those that train."""

import weakref


class Candidates:
    """`known(loader)` tells of the loaders whose batches were made already."""

    def __init__(self, hook, known):
        self._hook = hook
        self._known = known
        self._rejected = weakref.WeakSet()
        self._forced = weakref.WeakSet()
        #: The loader of the latest loop that was given its own batches.
        self._passed = None
        #: A loader was asked for a batch.
        self.any = False

    def takes(self, loader, driving):
        """Whether the loop that asks `loader` for a batch gets ours. `driving`: some loop does already."""
        self.any = True
        if loader in self._rejected:
            return False
        # A validation loop in the middle of training keeps its own batches, also where it shares the loader.
        if loader in self._forced or self._known(loader):
            taken = self._hook.torch.is_grad_enabled()
        else:
            taken = self._hook.training.likely()
        if taken:
            self._hook.phase = "train"
        elif driving:
            self._hook.phase = "eval"
        else:
            self._passed = weakref.ref(loader)
        return taken

    def may_change(self, loader):
        """Whether a loop that began with its own batches is given ours from now on."""
        return loader in self._forced

    def reject(self, loader):
        self._rejected.add(loader)

    def rejected(self, loader):
        return loader in self._rejected

    def trained(self):
        """A step was made although no loop was taken: the latest trains, with its model in evaluation mode, say."""
        passed = None if self._passed is None else self._passed()
        if passed is not None:
            self._forced.add(passed)
