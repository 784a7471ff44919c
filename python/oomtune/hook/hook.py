"""The hook of this process: what stands from its start, whether or not it ever trains."""

from __future__ import annotations

import atexit
import functools
import os
import sys

from .finder import Finder
from .report.link import Link
from .report.uncaught import ExceptionReporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Callable, NoReturn

    from .instruments import Instruments
    from .lives import Lives
    from .messages import Hello
    from .probe.quiet import ResultFiles
    from .settings import Settings
    from .types import ProcessState


#: When a module has been imported: the part of the hook that attends to it, and its function.
ALWAYS = {
    "torch": ("instruments", "instrument"),
    "torchdata.stateful_dataloader.stateful_dataloader": ("watch.loader", "stateful_loader"),
    "transformers.training_args": ("apply.frameworks", "transformers_arguments"),
    "lightning.pytorch.trainer.trainer": ("apply.frameworks", "lightning_trainer"),
    "pytorch_lightning.trainer.trainer": ("apply.frameworks", "lightning_trainer"),
}
SEARCHING = {
    "torch.utils.tensorboard": ("probe.quiet", "quiet_tensorboard"),
    "tensorboardX": ("probe.quiet", "quiet_tensorboard"),
    "mlflow": ("probe.quiet", "quiet_mlflow"),
    "safetensors.torch": ("probe.quiet", "quiet_safetensors"),
    "shutil": ("probe.quiet", "keep_from_shutil"),
}


class Hook:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.link = Link(settings.socket_path, self._hello)
        self.reporter = ExceptionReporter(self.link.send, self._state)
        #: What is in torch, once that has been imported.
        self.instruments: Instruments | None = None
        #: The user's files, in a process that is thrown away.
        self.result_files: ResultFiles | None = None
        #: Where this process may be a template.
        self.lives: Lives | None = None
        self.entry = "plain"
        #: Batches per optimizer step by a framework's own setting; None: to be seen.
        self.trainer_accumulation: int | None = None
        #: The framework that accumulates by itself; None: the script's loop does, or nobody.
        self.accumulates: str | None = None
        #: The training loop makes its batches without a loader.
        self.by_hand = False
        #: Knobs that a framework applies by itself.
        self.native: set[str] = set()
        #: Where an exception would have happened: load, train, eval, save.
        self.phase = "load"
        #: True while the worker decides on the batches.
        self.driving = False
        self._pid = os.getpid()
        self._said_goodbye = False
        self._told_cut = False

    def install(self) -> None:
        moments = dict(ALWAYS)
        if self.settings.searching:
            from .probe.quiet import ResultFiles, quiet_environment

            quiet_environment()
            moments.update(SEARCHING)
            self.result_files = ResultFiles(lambda: self.driving)
            self.result_files.install()
            self._watch_exit()
        if self.settings.forks:
            from .lives import Lives

            self.lives = Lives(self)
        Finder({name: self._at(*moment) for name, moment in moments.items()}).install()
        self.reporter.install()
        atexit.register(self._ending)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _at(self, part: str, function: str) -> Callable[[ModuleType], None]:
        """Loads a part of the hook when its moment has come, and no sooner: most processes never get there."""

        def callback(module: ModuleType) -> None:
            import importlib

            getattr(importlib.import_module("oomtune.hook." + part), function)(self, module)

        return callback

    def _watch_exit(self) -> None:
        """No exit handler runs then: without a last word the worker would wonder."""
        original = os._exit

        @functools.wraps(original)
        def _exit(status: int) -> None:
            if os.getpid() == self._pid:
                self._ending()
            original(status)

        os._exit = _exit

    def _forked(self) -> None:
        """Loader workers and other children are not this process: they only inherit what was patched."""
        if self.lives is not None:
            if self.lives.forking:
                return
            self.lives.forget()
        self.link.forget()
        self.driving = False
        if self.instruments is not None:
            self.instruments.deactivate()

    def begin_life(self) -> None:
        """This process is a fork that goes on as the one that was started would have."""
        self._pid = os.getpid()
        self.link.anew()
        atexit.register(self._ending_life)

    def _ending_life(self) -> None:
        """What was registered before the fork is left to the next life: a folder that would be removed here is its, too."""
        if self.reporter.told and os.getpid() == self._pid:
            self.leave(1)

    # -- where batches are cut

    def cut_choice(self) -> tuple[str, str]:
        """(where batches are cut, why): `model` or `loader`."""
        asked = self.settings.cut
        if self.by_hand:
            return "model", "the script makes its batches without a DataLoader"
        if asked != "auto":
            return asked, "asked for with --cut"
        if self.accumulates is not None:
            return "loader", "%s accumulates by itself" % self.accumulates
        return "model", "the loop sees its own batches only"

    def tell_cut(self) -> None:
        """Once."""
        if self._told_cut:
            return
        self._told_cut = True
        cut, why = self.cut_choice()
        self.link.send({"t": "cut", "cut": cut, "why": why})

    # -- messages

    def _hello(self) -> Hello:
        instruments = self.instruments
        return {
            "t": "hello",
            "v": 1,
            "pid": os.getpid(),
            "template": None if self.lives is None else self.lives.template,
            "rank": self.settings.rank,
            "world_size": self.settings.world_size,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": None if instruments is None else str(instruments.torch.__version__),
            "device": "cpu" if instruments is None or instruments.memory is None else instruments.memory.device,
        }

    def _state(self) -> ProcessState:
        if self.instruments is not None:
            return self.instruments.state()
        return {
            "phase": self.phase,
            "refused": False,
            "micro_batch": None,
            "trains": None,
            "ended": None,
            "keeper": None,
        }

    def goodbye(self, reason: str, message: str) -> None:
        """The last word: why this process stops being of use. Once."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self.link.send({"t": "bye", "reason": reason, "message": message})

    # -- the end of the process

    def _ending(self) -> None:
        """The script came to its end while batches were still asked for."""
        if self.driving and os.getpid() == self._pid:
            if not self.reporter.told:
                self.loop_over()
            self._end_ancestors()

    def loop_over(self) -> None:
        if not self._said_goodbye and self.instruments is not None:
            self.instruments.controller.ending()
        self.goodbye("loop_over", "the training loop ended by itself")

    def give_up(self, reason: str) -> NoReturn:
        """The script cannot be driven: says why, and ends it before it does more."""
        self.goodbye("undriveable", reason)
        self.leave(0)

    def uncut(self, reason: str) -> NoReturn:
        """The batch cannot be cut without training something else: says so, and ends the script."""
        message = "the batch is not cut at the model's call, since %s" % reason
        if not self.driving:
            instead = "" if self.by_hand else " --cut loader cuts the loader's batches instead."
            sys.stderr.write("oomtune: %s.%s\n" % (message, instead))
        self.goodbye("uncut", message)
        self.leave(1)

    def cannot_make(self, own: int, wanted: int) -> NoReturn:
        """Another batch is asked for than the script makes by itself, and no loader yields it: says so, and ends the script."""
        message = (
            "the script makes its batches of %d without a DataLoader, so that batches of %d cannot be made of them"
        )
        sys.stderr.write("oomtune: %s. Its own flag or variable sets them.\n" % (message % (own, wanted)))
        self.goodbye("by_hand", message % (own, wanted))
        self.leave(1)

    def leave(self, status: int) -> NoReturn:
        """Ends the process here and now: nothing of the script's runs any more, no exit handler either."""
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
        self.link.close()
        if status == 0:
            self._end_ancestors()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        os._exit(status)

    def _end_ancestors(self) -> None:
        if self.lives is not None and self.lives.template is not None:
            return  # the template does, when it is told to end
        from .ancestors import end_ancestors

        end_ancestors()
