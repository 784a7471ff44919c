"""Counts what a script does from batch to batch, and tells when it cannot be driven."""

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
    def __init__(self):
        #: Batches handed out since the last optimizer step, and backward passes meanwhile.
        self.batches = self.backwards = 0
        #: An optimizer stepped since the last batch was asked for.
        self.stepped = False
        self._unasked = 0

    def asked(self):
        self._unasked = 0

    def begin(self):
        """A new step: what came before does not count for it."""
        self.stepped = False
        self.batches = self.backwards = 0

    def step(self, in_backward):
        """`in_backward`: an optimizer for each parameter steps as soon as its gradient is there; many make one step."""
        self.stepped = True
        if not in_backward:
            self._unasked += 1

    @property
    def idle(self):
        """A loop goes round without training anything."""
        return self.batches >= NO_BACKWARD and self.backwards == 0

    def hindrance(self, loaders, optimizers):
        """Why the script cannot be driven; None as long as it may. `loaders`: whether a loader was asked at all."""
        if self.batches >= NO_STEP:
            return "no optimizer step in %d batches" % self.batches
        if not loaders and self._unasked >= NO_LOADER:
            return "the script trains without a torch DataLoader"
        if self._unasked >= NO_REQUEST:
            return "the script makes step after step without asking its DataLoader for another batch"
        if not optimizers and self.backwards >= NO_OPTIMIZER:
            return "the script trains without a torch optimizer"
        return None
