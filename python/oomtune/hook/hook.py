"""The hook of this process: one object that holds its parts together."""

import atexit
import functools
import os
import sys

from .ancestors import end_ancestors
from .finder import Finder
from .link import Link
from .report import Reporter
from .results import Results

#: When a module has been imported: the part of the hook that attends to it, and its function.
ALWAYS = {
    "torch": ("patches", "patch_torch"),
    "torchdata.stateful_dataloader.stateful_dataloader": ("loader", "stateful_loader"),
    "transformers.training_args": ("entries", "transformers_arguments"),
    "lightning.pytorch.trainer.trainer": ("entries", "lightning_trainer"),
    "pytorch_lightning.trainer.trainer": ("entries", "lightning_trainer"),
}
SEARCHING = {
    "torch.utils.tensorboard": ("trackers", "quiet_tensorboard"),
    "tensorboardX": ("trackers", "quiet_tensorboard"),
    "mlflow": ("trackers", "quiet_mlflow"),
    "safetensors.torch": ("saving", "quiet_safetensors"),
    "shutil": ("results", "keep_from_shutil"),
}


class Hook:
    def __init__(self, settings):
        self.settings = settings
        self.link = Link(settings.socket_path, self._hello)
        self.reporter = Reporter(self.link.send, self._state)
        self.torch = None
        self.guide = None
        self.meter = None
        self.entry = "plain"
        #: Batches per optimizer step by a framework's own setting; None: to be seen.
        self.trainer_accumulation = None
        #: The framework that accumulates by itself; None: the script's loop does, or nobody.
        self.accumulates = None
        #: The cut at the model's call; None where nothing is changed.
        self.cut = None
        #: Knobs that a framework applies by itself.
        self.native = set()
        #: The user's files, in a process that is thrown away.
        self.results = None
        #: A loss that sums was made.
        self.sum_loss = False
        #: Where an exception would have happened: load, train, eval, save.
        self.phase = "load"
        #: True while the worker decides on the batches.
        self.driving = False
        self._own_amp = False
        self._pid = os.getpid()
        self._said_bye = False
        self._told_cut = False

    def install(self):
        moments = dict(ALWAYS)
        if self.settings.searching:
            from .trackers import quiet_environment

            quiet_environment()
            moments.update(SEARCHING)
            self.results = Results(lambda: self.driving)
            self.results.install()
            self._watch_exit()
        Finder({name: self._at(*moment) for name, moment in moments.items()}).install()
        self.reporter.install()
        atexit.register(self._ending)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _at(self, part, function):
        """Loads a part of the hook when its moment has come, and no sooner: most processes never get there."""

        def callback(module):
            import importlib

            getattr(importlib.import_module("oomtune.hook." + part), function)(self, module)

        return callback

    # -- listeners of the optimizer watcher

    def before_step(self, optimizer):
        if self.guide is not None:
            self.guide.before_step()

    def after_step(self, optimizer):
        if self.guide is not None:
            self.guide.after_step()

    def forward_backward_again(self):
        if self.guide is not None:
            self.guide.forward_backward_again()

    def backward_begins(self):
        if self.guide is not None:
            self.guide.backward()
        return self.gate.backward()

    def _watch_exit(self):
        """No exit handler runs then: without a last word the worker would wonder."""
        original = os._exit

        @functools.wraps(original)
        def _exit(status):
            if os.getpid() == self._pid:
                self._ending()
            original(status)

        os._exit = _exit

    # -- messages

    def _hello(self):
        torch = self.torch
        device = self.meter.device if self.meter is not None else "cpu"
        return {
            "t": "hello",
            "v": 1,
            "pid": os.getpid(),
            "rank": self.settings.rank,
            "local_rank": self.settings.local_rank,
            "world_size": self.settings.world_size,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": str(torch.__version__) if torch is not None else None,
            "device": device,
            "entry": self.entry,
        }

    def describe_loop(self, loader, source):
        from .loop import describe

        return describe(self, loader, source)

    def apply_rung(self):
        settings = self.settings
        asked = settings.knobs - self.native
        amp = settings.amp if "amp" in asked else "off"
        checkpointing = settings.checkpointing and "checkpointing" in asked
        offload = settings.offload and "offload" in asked
        if amp != "off" or checkpointing or offload:
            self.rung.switch(amp, checkpointing, offload)

    def warn_of_differences(self, loader):
        from .loop import DIFFERENCES, warnings

        for code in warnings(self, None):
            self.telemetry.warn(code, DIFFERENCES[code])

    def recomputes(self):
        """A checkpoint makes a part of a forward pass again (the cut does so, too, and all knobs are on then)."""
        return self.unwinds() and not self.cut.passing

    def unwinds(self):
        """A backward pass runs, the script's or that of a part of a cut call."""
        return self.backward.running or self.cut.unwinding

    def own_amp(self):
        """The script's own autocast was on at some time."""
        return self._own_amp

    def saw_own_amp(self):
        self._own_amp = True

    def _state(self):
        refused = self.meter is not None and self.meter.ledger.refused() > 0
        return {
            "phase": self.phase,
            "refused": refused,
            "micro_batch": getattr(self.guide, "micro_batch", None),
            "trains": self.training.switches if self.torch is not None else None,
            "ended": self.telemetry.ended.at if self.torch is not None else None,
            "keeper": self.telemetry.keeper if self.torch is not None else None,
        }

    def bye(self, reason, message):
        if not self._said_bye:
            self._said_bye = True
            self.link.send({"t": "bye", "reason": reason, "message": message})

    def _ending(self):
        """The script came to its end while batches were still asked for."""
        if self.driving and os.getpid() == self._pid:
            if not self.reporter.told:
                self.loop_over()
            end_ancestors()

    def loop_over(self):
        if not self._said_bye:
            self.guide.ending()
        self.bye("loop_over", "the training loop ended by itself")

    def give_up(self, reason):
        """The script cannot be driven: says why, and ends it before it does more."""
        self.bye("undriveable", reason)
        self.leave(0)

    def cut_choice(self):
        """(where batches are cut, why): `model` or `loader`."""
        asked = self.settings.cut
        if asked != "auto":
            return asked, "asked for with --cut"
        if self.accumulates is not None:
            return "loader", "%s accumulates by itself" % self.accumulates
        return "model", "the loop sees its own batches only"

    def tell_cut(self):
        """Once."""
        if self._told_cut:
            return
        self._told_cut = True
        cut, why = self.cut_choice()
        self.link.send({"t": "cut", "cut": cut, "why": why})

    def uncut(self, reason):
        """The batch cannot be cut without training something else: says so, and ends the script."""
        message = "the batch is not cut at the model's call, since %s" % reason
        if not self.driving:
            sys.stderr.write("oomtune: %s. --cut loader cuts the loader's batches instead.\n" % message)
        self.bye("uncut", message)
        self.leave(1)

    def leave(self, status):
        """Ends the process here and now: nothing of the script's runs any more, no exit handler either."""
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
        self.link.close()
        if status == 0:
            end_ancestors()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        os._exit(status)

    def _forked(self):
        """Loader workers and other children are not this process: they only inherit what was patched."""
        self.link.forget()
        self.guide = None
        self.driving = False
        if self.torch is not None:
            self.gate.release()
            if self.cut is not None:
                self.cut.release()
            self.optimizers.active = False
            self.backward.active = False
