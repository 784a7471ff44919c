"""The line of the script where lives are forked: its first use of the device; where the command's words have the size, the line that reads them.

If a fork could behave differently from a start, this process goes on by itself instead, as without lives.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading

from ..watch.existing import set_apart
from ..watch.memory import Ledger
from ..watch.world import world_size
from .findings import Findings
from .fork_server import OWN_SIGNALS, ForkServer
from .process_state import cuda_is_initialized, has_children, open_sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..hook import Hook
    from ..types import Torch
    from .arguments import Arguments


#: With this set torch asks NVML for devices, not the driver: looking whether there is a GPU does not initialize CUDA.
ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


class ForkPoint:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        #: The device is a GPU's.
        self.cuda = os.environ.get("OOMTUNE_DEVICE", "").startswith("cuda")
        self._sockets = open_sockets()
        #: True while a fork is under way that goes on as this process.
        self.forking = False
        #: Pid of the fork server that this life was forked from; None: this process is no life.
        self.fork_server: int | None = None
        #: Why this process goes on by itself; None: it has not reached the fork point yet, or is a life.
        self.refusal: str | None = None
        self._unpatch: Callable[[], None] | None = None
        self._reached = False
        #: Write end of the pipe on which the first life tells its fork server that it trains.
        self._training_pipe: int | None = None
        #: None until torch has been imported.
        self._torch: Torch | None = None
        #: What lives leave to those after them; None: this process is none.
        self.findings: Findings | None = None
        #: The script's arguments, where lives differ by them; None: they do not.
        self.arguments: Arguments | None = None
        if hook.settings.mode == "measure":
            from .arguments import Arguments

            self.arguments = Arguments.watch(self._arguments_read)
        self._asks_nvml = self.cuda and ASK_NVML not in os.environ
        if self._asks_nvml:
            os.environ[ASK_NVML] = "1"

    def install(self, torch: Torch) -> None:
        """Puts the fork point at the first use of the device. On the CPU that is the first parameter: the fork server pays for
        what was imported and read by then, the life for what trains. Where lives differ by their arguments: at the reading of these,
        if that is earlier (nanoGPT asks the device for bf16 before it reads them)."""
        self._torch = torch
        if self.refusal is not None:
            return
        owner, name = (torch._C, "_cuda_init") if self.cuda else (torch.nn.Module, "register_parameter")
        original = getattr(owner, name, None)
        if original is None:
            self._refuse("this torch knows no such device")
            return

        def first_use(*args: Any, **kwargs: Any) -> Any:
            if not self._reached:  # by what is imported ahead, say
                self._reach(torch)
            return original(*args, **kwargs)

        def unpatch() -> None:
            self._unpatch = None
            setattr(owner, name, original)
            if self._asks_nvml:
                os.environ.pop(ASK_NVML, None)

        self._unpatch = unpatch
        setattr(owner, name, first_use)

    def _arguments_read(self) -> None:
        if self._torch is None:
            self._refuse("the arguments were read before torch was imported")
        elif not self._reached:
            self._reach(self._torch)

    def _reach(self, torch: Torch) -> None:
        """The script has come to the fork point."""
        self._reached = True
        if not self._hook.settings.spares:
            self.import_ahead()
        if self._unpatch is not None:
            self._unpatch()
        self._serve(torch)

    def import_ahead(self) -> None:
        """Imports once for all lives what optimizers import when they are made, which takes seconds."""
        if not hasattr(sys.modules.get("torch"), "_disable_dynamo"):
            return
        # Collections come the seldomer the more objects there are: with those of torch's import set apart they would free garbage of
        # this one that is there in a start.
        gc.unfreeze()
        importlib.import_module("torch._dynamo")
        set_apart()

    def look_ahead(self) -> None:
        """In the fork server, while its first life is at work: finds what each of the others would have to."""
        if self._hook.instrumentation is not None:
            self._hook.instrumentation.modules.look_ahead()

    def training_begins(self) -> None:
        """Tells the fork server that the training loop begins; in a process that is no life, tells the worker why."""
        if self._training_pipe is not None:
            os.write(self._training_pipe, b"1")
            self.close_pipe()
        if self.fork_server is None:
            self._refuse(
                "its training did not come to %s"
                % ("a first use of the device" if self.arguments is None else "read its arguments")
            )
            self._hook.connection.send({"t": "plain", "message": self.refusal or ""})

    def close_pipe(self) -> None:
        """Also in children that are no lives: they must not speak for one."""
        if self._training_pipe is not None:
            os.close(self._training_pipe)
            self._training_pipe = None

    def begin_life(self, fork_server: int, training_pipe: int | None) -> None:
        """In a new life: sets all that tells this process from its parent."""
        self.fork_server = fork_server
        self._training_pipe = training_pipe
        self._hook.begin_life()
        Ledger.begin_life()

    def _refuse(self, reason: str) -> None:
        if self._unpatch is not None:
            self._unpatch()
        if self.arguments is not None:
            self.arguments.rest()
        self.refusal = self.refusal or reason

    def _serve(self, torch: Torch) -> None:
        reason = self._hindrance(torch)
        if reason is None:
            self.findings = Findings()
        if reason is None and self._hook.settings.spares:
            from .spare import leave_spare

            reason = leave_spare(self._hook, self)
        elif reason is None:
            reason = ForkServer(self._hook, self).serve()
        if reason is not None:
            self._refuse(reason)

    def _hindrance(self, torch: Torch) -> str | None:
        """Why this process must not be forked: what a fork would share with its parent, or lose."""
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            return "another process of the script trains"
        if world_size(torch) > 1:
            return "several ranks train together"
        if threading.current_thread() is not threading.main_thread():
            return "another thread than the main one trains"
        if getattr(torch.version, "hip", None) or torch.cuda.is_initialized() or cuda_is_initialized():
            return "the device was in use before"
        if has_children():
            return "the script has child processes"
        if open_sockets() - self._sockets - self._hook.connection.descriptors():
            return "the script has sockets"
        if any(signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
            return "the script has set a timer"
        if any(signal.getsignal(number) is None for number in OWN_SIGNALS):
            return "a signal is handled by another language's code"
        return None
