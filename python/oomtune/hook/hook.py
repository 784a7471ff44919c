"""The hook of this process: installed at its start, whether or not it ever trains."""

from __future__ import annotations

import atexit
import functools
import os
import sys

from .post_import import PostImportFinder
from .report.connection import Connection
from .report.exception_reporter import ExceptionReporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, NoReturn

    from .fork.fork_point import ForkPoint
    from .instrumentation import Instrumentation
    from .messages import Hello
    from .probe.artifact_guard import ArtifactGuard
    from .settings import Settings
    from .types import ProcessState


#: By imported module: the hook's module to load then, and the function to call in it.
ALWAYS = {
    "torch": ("instrumentation", "instrument"),
    "multiprocessing.process": ("report.child_processes", "report_ends"),
    "torchdata.stateful_dataloader.stateful_dataloader": ("watch.loader", "patch_stateful_loader"),
    "keras.src.optimizers.base_optimizer": ("watch.keras", "watch_optimizers"),
    "keras.src.backend.torch.trainer": ("watch.keras", "watch_fit"),
    "transformers.training_args": ("apply.transformers_trainer", "patch_arguments"),
    "transformers.trainer": ("apply.transformers_trainer", "patch_trainer"),
    "lightning.pytorch.trainer.trainer": ("apply.lightning_trainer", "patch_trainer"),
    "pytorch_lightning.trainer.trainer": ("apply.lightning_trainer", "patch_trainer"),
}
SEARCHING = {
    "jax": ("watch.xla_pool", "report_at_exit"),
    "torch.utils.tensorboard": ("probe.dry_run", "quiet_tensorboard"),
    "tensorboardX": ("probe.dry_run", "quiet_tensorboard"),
    "mlflow": ("probe.dry_run", "quiet_mlflow"),
    "transformers.trainer_callback": ("apply.transformers_trainer", "patch_control"),
    "safetensors.torch": ("probe.artifact_guard", "guard_safetensors"),
    "shutil": ("probe.artifact_guard", "keep_from_shutil"),
}
#: Of those, what other libraries take functions from by name.
TAKEN_BY_NAME = ("safetensors.torch",)


class Hook:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connection = Connection(settings.socket_path, self._hello, returns=settings.mode == "apply")
        self.reporter = ExceptionReporter(self.connection.send, self._state)
        #: None until torch has been imported.
        self.instrumentation: Instrumentation | None = None
        #: Protects the user's files in a process that is thrown away.
        self.artifact_guard: ArtifactGuard | None = None
        #: Set if this process may become a fork server, or leave one.
        self.fork_point: ForkPoint | None = None
        self.entry = "plain"
        #: Batches per optimizer step by a framework's own setting; None: unknown.
        self.trainer_accumulation: int | None = None
        #: transformers' arguments that the script has made, where a search may follow in this process.
        self.trainer_arguments: list[Any] = []
        #: The framework that accumulates gradients itself; None: none does.
        self.accumulates: str | None = None
        #: The framework that counts the batches of a pass before it; None: none does.
        self.counts_batches: str | None = None
        #: The training loop makes its batches without a loader.
        self.loaderless = False
        #: The script trained on batches of its own, while a loader might yet have been asked for one.
        self.waited_for_loader = False
        #: Knobs that a framework applies by itself.
        self.native: set[str] = set()
        #: What the process does now: load, train, eval, save.
        self.phase = "load"
        #: True while the worker chooses the batches.
        self.controlled = False
        #: True from the beginning of a rehearsal's training on.
        self.rehearsing = False
        self._pid = os.getpid()
        self._said_goodbye = False
        self._reported_cut = False

    def install(self) -> None:
        moments = dict(ALWAYS)
        if self.settings.thrown_away or self.settings.spares:
            from .probe.artifact_guard import ArtifactGuard

            # A spare turns its job's on.
            self.artifact_guard = ArtifactGuard(
                lambda: self.controlled or self.rehearsing, whole=self.settings.rehearses
            )
        if self.artifact_guard is not None and self.settings.thrown_away:
            from .probe.dry_run import quiet_environment

            quiet_environment()
            if self.settings.estimate:
                # Scripted and compiled functions would not see what stands in for the card.
                os.environ.update(PYTORCH_JIT="0", TORCHDYNAMO_DISABLE="1")
            moments.update(SEARCHING)
            self.artifact_guard.install()
            self._wrap_os_exit()
        if self.settings.spares:
            # Functions that libraries take by name have to be told before.
            moments.update({name: SEARCHING[name] for name in TAKEN_BY_NAME})
        if self.settings.forks or self.settings.spares:
            from .fork.fork_point import ForkPoint

            self.fork_point = ForkPoint(self)
        self._watch_imports(moments)
        self.reporter.install()
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_forked_child)

    def _watch_imports(self, moments: dict[str, tuple[str, str]]) -> None:
        PostImportFinder({name: self._when_imported(*moment) for name, moment in moments.items()}).install()

    def begin_search(self) -> None:
        """In the spare of a job that runs as it stands: what a search installs at the start of a process."""
        from .probe.dry_run import quiet_environment

        self.settings.begin_search()
        quiet_environment()
        moments = {name: moment for name, moment in SEARCHING.items() if name not in TAKEN_BY_NAME}
        self._watch_imports(moments)
        for name in set(moments).intersection(sys.modules):
            self._when_imported(*moments[name])(sys.modules[name])
        if self.artifact_guard is not None:
            self.artifact_guard.install()
        self._wrap_os_exit()
        if self.instrumentation is not None:
            self.instrumentation.begin_search()
        if self.trainer_arguments:
            from .apply.transformers_trainer import quiet_arguments

            quiet_arguments(self)

    def _when_imported(self, part: str, function: str) -> Callable[[ModuleType], None]:
        """Loads a part of the hook only when it is needed: most processes never need it."""

        def callback(module: ModuleType) -> None:
            import importlib

            getattr(importlib.import_module("oomtune.hook." + part), function)(self, module)

        return callback

    def _wrap_os_exit(self) -> None:
        """os._exit() runs no exit handler: says goodbye to the worker before it."""
        original = os._exit

        @functools.wraps(original)
        def _exit(status: int) -> None:
            if os.getpid() == self._pid:
                self._at_exit()
            original(status)

        os._exit = _exit

    def _in_forked_child(self) -> None:
        """Loader workers and other children only inherit the patches: turns them off."""
        if self.fork_point is not None:
            if self.fork_point.forking:
                return
            self.fork_point.close_pipe()
        self.connection.forget()
        self.controlled = self.rehearsing = False
        if self.instrumentation is not None:
            self.instrumentation.deactivate()

    def begin_life(self) -> None:
        """In a life: it goes on as the process that was started would have."""
        self._pid = os.getpid()
        self.connection.reopen_in_fork()
        atexit.register(self._at_exit_of_life)

    def _at_exit_of_life(self) -> None:
        """Skips exit handlers that were registered before the fork: a folder that they remove belongs to the next life, too."""
        if self.reporter.reported and os.getpid() == self._pid:
            self.exit_process(1)

    @property
    def trains(self) -> bool:
        """The process has made an optimizer."""
        return self.instrumentation is not None and self.instrumentation.optimizers.exist()

    # -- where batches are cut

    def cut_choice(self) -> tuple[str, str]:
        """(`model` or `loader`: where batches are cut, why)."""
        asked = self.settings.cut
        if self.loaderless:
            return "model", "the script makes its batches without a DataLoader"
        if self.counts_batches is not None:
            return "model", "%s counts the batches of a pass before it" % self.counts_batches
        if self.settings.keeps_unknown and self.accumulates is not None:
            return "model", "the batches that %s takes have no one size that is known" % self.accumulates
        if asked in ("model", "loader"):
            return asked, "asked for with --cut"
        if self.settings.counts_tokens:
            return "model", "micro-batches are counted in tokens"
        if asked == "whole" and self.accumulates is not None:
            return "model", "micro-batches that %s adds up would be another training" % self.accumulates
        if self.accumulates is not None:
            return "loader", "%s accumulates by itself" % self.accumulates
        return "model", "the loop sees its own batches only"

    @property
    def adds_up_by_itself(self) -> bool:
        """Whether a framework accumulates the micro-batches, and nobody has asked for that."""
        return self.accumulates is not None and self.settings.cut == "auto" and self.cut_choice()[0] == "loader"

    def report_cut(self) -> None:
        """Only the first call sends a message."""
        if self._reported_cut:
            return
        self._reported_cut = True
        cut, why = self.cut_choice()
        self.connection.send({"t": "cut", "cut": cut, "why": why})

    # -- messages

    def _hello(self) -> Hello:
        instrumentation = self.instrumentation
        torch = None if instrumentation is None else instrumentation.torch
        from .watch import world

        return {
            "t": "hello",
            "v": 1,
            "pid": os.getpid(),
            "fork_server": None if self.fork_point is None else self.fork_point.fork_server,
            "rank": world.rank(torch),
            "world_size": world.world_size(torch),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": None if torch is None else str(torch.__version__),
            "device": "cpu"
            if instrumentation is None or instrumentation.memory is None
            else instrumentation.memory.device,
        }

    def _state(self) -> ProcessState:
        if self.instrumentation is not None:
            return self.instrumentation.state()
        return {
            "phase": self.phase,
            "refused": False,
            "micro_batch": None,
            "trains": None,
            "ended": None,
            "stepped": False,
            "growing_variable": None,
            "waited_for_loader": False,
            "without_optimizer": False,
            "cut_calls": None,
            "end_loop": None,
        }

    def goodbye(self, reason: str, message: str) -> None:
        """Tells the worker why this process is of no more use. Only the first call sends a message."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self.connection.send({"t": "goodbye", "reason": reason, "message": message})

    # -- the end of the process

    def _at_exit(self) -> None:
        """The script ended before the worker was done with it."""
        if self.rehearsing and os.getpid() == self._pid and self.instrumentation is not None:
            self.instrumentation.controller.before_exit()
        if self.controlled and os.getpid() == self._pid:
            if not self.reporter.reported:
                self.report_loop_end()
            self._end_ancestors()
        elif self.settings.probing and os.getpid() == self._pid and self.instrumentation is not None:
            unseen = self.instrumentation.why_unseen()
            if unseen is not None and not self.reporter.reported:
                self.goodbye("undriveable", unseen)

    def report_loop_end(self) -> None:
        if not self._said_goodbye and self.instrumentation is not None:
            self.instrumentation.controller.before_exit()
        self.goodbye("loop_over", "the training loop ended by itself")

    def stop_unsuitable(self, reason: str) -> NoReturn:
        """The worker cannot set this script's batch sizes: tells it why and ends the process."""
        self.goodbye("undriveable", reason)
        self.exit_process(0)

    def stop_uncut(self, reason: str) -> NoReturn:
        """Cutting the batch would change the training: says so and ends the process."""
        from .cut.refusal import INSTEAD, NOWHERE

        if reason.endswith(INSTEAD):
            self.stop_at_model(reason[: -len(INSTEAD)])
        message = "the batch is not cut at the model's call, since %s" % reason
        if not self.controlled:
            elsewhere = not self.loaderless and self.counts_batches is None and not reason.endswith(NOWHERE)
            instead = " --cut loader cuts the loader's batches instead." if elsewhere else ""
            sys.stderr.write("oomtune: %s.%s\n" % (message, instead))
        self.goodbye("uncut", message)
        self.exit_process(1)

    def stop_at_model(self, reason: str) -> NoReturn:
        """Micro-batches that a framework adds up would be another training: ends the process, and the next one cuts at the model's call."""
        self.goodbye("at_model", "the batch is cut at the model's call, since %s" % reason)
        self.exit_process(1)

    def stop_unchunked(self, reason: str) -> NoReturn:
        """With the loss in chunks the training would not be the same: says so and ends the process."""
        message = "the loss is not computed in chunks, since %s" % reason
        if not self.controlled:
            sys.stderr.write("oomtune: %s. --chunked-loss off computes it whole.\n" % message)
        self.goodbye("unchunked", message)
        self.exit_process(1)

    def stop_without_8bit(self, reason: str) -> NoReturn:
        """The environment has lost what a recorded configuration was found with: says so and ends the process."""
        message = "the optimizer's moments cannot be held in 8 bits: %s" % reason
        if self.settings.searching:
            raise RuntimeError(message)  # the search leaves the rung out
        sys.stderr.write("oomtune: %s. Without --allow 8bit-optimizer the job runs without.\n" % message)
        self.goodbye("without_8bit", message)
        self.exit_process(1)

    def stop_cannot_make(self, own: int, wanted: int) -> NoReturn:
        """Another batch size than the script makes is wanted, and there is no loader to yield it: says so and ends the process."""
        message = (
            "the script makes its batches of %d without a DataLoader, so that batches of %d cannot be made of them"
        )
        sys.stderr.write("oomtune: %s. Its own flag or variable sets them.\n" % (message % (own, wanted)))
        self.goodbye("by_hand", message % (own, wanted))
        self.exit_process(1)

    def exit_process(self, status: int) -> NoReturn:
        """Ends the process at once: neither the script nor an exit handler runs any more."""
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
        self.connection.close()
        if status == 0:
            self._end_ancestors()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        os._exit(status)

    def _end_ancestors(self) -> None:
        if self.fork_point is not None and self.fork_point.fork_server is not None:
            return  # the fork server does, when it is told to end
        from .ancestors import end_ancestors

        end_ancestors()
