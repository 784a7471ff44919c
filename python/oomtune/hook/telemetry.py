"""What a running job tells of itself: steps, memory at each, evaluation, saving, and things worth a warning."""

import time

from . import samples
from .ended import Ended
from .keepers import Keepers
from .meter import find_meter
from .report import is_user_code

#: Steps that are all reported; later ones after so many seconds, or so much of the steps made: what a fast loop leaves behind
#: fills the memory within seconds.
FIRST, SECONDS, PART = 10, 5.0, 0.1
#: Part of the memory in use that a variable has grown by if it is to blame that there is no more.
MOST = 0.25


class Telemetry:
    def __init__(self, hook):
        self._hook = hook
        self._torch = hook.torch
        self._meter = None
        self._steps = 0
        self._told = 0.0
        self._told_step = 0
        self._keepers = None
        self._batch = None
        self._warned = set()
        self._evaluating = False
        self._said = {}
        self.ended = Ended(is_user_code)

    def loop(self, loader):
        """A loop over a loader begins."""
        training = self._hook.training
        if len(self._hook.optimizers) == 0:
            return
        if training.likely():
            self._evaluating = False
            self._hook.phase = "train"
            self.ended.began()
            self._batch = self._batch or samples.own_batch(loader)
            tensors = getattr(loader.dataset, "tensors", ())
            if any(getattr(tensor, "is_cuda", False) for tensor in tensors):
                self.warn("dataset_on_device", "The data set lies on the device and takes memory from the training.")
        else:
            self._hook.phase = "eval"
            self._say("eval", "an evaluation loop begins")
            if training.evaluating() and self._torch.is_grad_enabled() and not self._evaluating:
                self._evaluating = True
                self._watch_graph()

    def stepped(self):
        self._steps += 1
        self.ended.stepped()
        self._hook.training.stepped()
        self._hook.phase = "train"
        if not self._wants():
            return
        self._told, self._told_step = time.monotonic(), self._steps
        if self._meter is None:
            self._meter = self._hook.meter = find_meter(self._torch)
        settings = self._hook.settings
        batch = self._batch if "micro_batch" not in settings.knobs else None
        per_step = batch or (settings.micro_batch or 0) * settings.accumulation
        self._hook.link.send(
            {
                "t": "step",
                "n": self._steps,
                "samples": self._steps * per_step,
                "resident_bytes": self._meter.live(),
            }
        )

        if self._steps == FIRST:
            self._keepers = Keepers(self._torch)
            self._keepers.look()

    def keeper(self, trace):
        """The variable that has grown, since the first steps, by a good part of what was in use where `trace` ends; None: none was
        seen."""
        if self._keepers is None or trace is None:
            return None
        while trace.tb_next is not None:
            trace = trace.tb_next
        return self._keepers.named_at(trace.tb_frame, MOST * (self._meter.live() or 0))

    def _wants(self):
        if self._steps <= FIRST or self._steps - self._told_step >= max(1, PART * self._told_step):
            return True
        return time.monotonic() - self._told >= SECONDS

    def warn(self, code, message):
        if code not in self._warned:
            self._warned.add(code)
            self._hook.link.send({"t": "warn", "code": code, "message": message})

    def saving(self):
        self._say("save", "a checkpoint is written")

    def _say(self, kind, message):
        now = time.monotonic()
        if now - self._said.get(kind, -SECONDS) >= SECONDS:
            self._said[kind] = now
            self._hook.link.send({"t": kind, "message": message})

    def _watch_graph(self):
        """model.eval() alone does not stop torch from keeping activations: look whether they are kept."""
        for root in self._hook.modules.roots():
            self._hook.rung.watch(root, self._look)

    def _look(self, module, output):
        from .trees import leaves

        if module.training or "eval_builds_graph" in self._warned:
            return
        for leaf in leaves(output):
            if isinstance(leaf, self._torch.Tensor) and leaf.grad_fn is not None:
                self.warn(
                    "eval_builds_graph",
                    "The evaluation keeps activations for a backward pass that never comes: wrap it in torch.no_grad().",
                )
                return
