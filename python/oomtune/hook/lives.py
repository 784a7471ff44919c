"""Fresh processes without another start. The process that was started runs the script up to its first use of the device and waits
there as a template; each life is a fork of it, which goes on from that line.

Whatever could make a life differ from a start makes this process go on by itself instead, as if there were no lives.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import signal
import sys
import threading
import time
import warnings

from .report.link import Link
from .watch.memory import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

    from .hook import Hook
    from .messages import TemplateHello
    from .types import Message, Torch


#: torch asks NVML for devices then, not the driver: to look whether there is a GPU is not to use it.
ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
#: A template reaps its lives by itself and ends at once when it is told to, whatever the script does about these.
OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
#: Threads by name whose libraries have them anew in a child: jemalloc's, which pyarrow brings.
FORK_SAFE = ("jemalloc_bg_thd",)
NOT_INITIALIZED = 3
PAUSE_HARD = 2


class Lives:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._cuda = os.environ.get("OOMTUNE_DEVICE", "").startswith("cuda")
        self._sockets = _sockets()
        #: A fork is under way that goes on as this process.
        self.forking = False
        #: The process that this life is a fork of; None: this is no life.
        self.template: int | None = None
        #: Why this process goes on by itself; None: it has not come to the point yet, or is a life.
        self.refusal: str | None = None
        self._restore: Callable[[], None] | None = None
        #: The point was reached.
        self._came = False
        #: Where the first life tells its template that it trains.
        self._trains: int | None = None
        self._asks_nvml = self._cuda and ASK_NVML not in os.environ
        if self._asks_nvml:
            os.environ[ASK_NVML] = "1"

    def install(self, torch: Torch) -> None:
        """Lays the fork where the device is used first. On the CPU that is the first parameter: what was imported and read by then
        is the template's, what trains is counted in the life."""
        place, name = (torch._C, "_cuda_init") if self._cuda else (torch.nn.Module, "register_parameter")
        original = getattr(place, name, None)
        if original is None:
            self._refuse("this torch knows no such device")
            return

        def first(*args: Any, **kwargs: Any) -> Any:
            if not self._came:
                self._came = True
                _import_ahead(torch)
                restore()
                self._reached(torch)
            return original(*args, **kwargs)

        def restore() -> None:
            self._restore = None
            setattr(place, name, original)
            if self._asks_nvml:
                os.environ.pop(ASK_NVML, None)

        self._restore = restore
        setattr(place, name, first)

    def told(self) -> None:
        """The training loop begins: says so to the template, or where it does in a process that is no life to the worker."""
        if self._trains is not None:
            os.write(self._trains, b"1")
            self.forget()
        if self.template is None:
            self._refuse("its training did not come to a first use of the device")
            self._hook.link.send({"t": "plain", "message": self.refusal or ""})

    def _refuse(self, reason: str) -> None:
        if self._restore is not None:
            self._restore()
        self.refusal = self.refusal or reason

    def _reached(self, torch: Torch) -> None:
        reason = self._hindrance(torch)
        if reason is None:
            reason = Template(self._hook, self).serve()
        if reason is not None:
            self._refuse(reason)

    def _hindrance(self, torch: Torch) -> str | None:
        """What a fork would share with its parent, or lose."""
        settings = self._hook.settings
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            return "another process of the script trains"
        if settings.world_size > 1:
            return "several ranks train together"
        if threading.current_thread() is not threading.main_thread():
            return "another thread than the main one trains"
        if getattr(torch.version, "hip", None) or torch.cuda.is_initialized() or _driver_is_up():
            return "the device was in use before"
        if _has_children():
            return "the script has child processes"
        if _sockets() - self._sockets - self._hook.link.files():
            return "the script has sockets"
        if any(signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
            return "the script has set a timer"
        if any(signal.getsignal(number) is None for number in OWN_SIGNALS):
            return "a signal is handled by another language's code"
        return None

    def forget(self) -> None:
        """In a child too, which is no life: that is not its to tell."""
        if self._trains is not None:
            os.close(self._trains)
            self._trains = None

    def become(self, template: int, trains: int | None) -> None:
        """In a life: all that tells this process from its parent is set."""
        self.template = template
        self._trains = trains
        self._hook.begin_life()
        Ledger.begin_life()


class Template:
    """The process that waits at the fork. Nothing that happens here may reach the script's own frames."""

    def __init__(self, hook: Hook, lives: Lives) -> None:
        self._lives = lives
        self._line = Link(hook.settings.socket_path, self._hello)
        self._pid = os.getpid()
        #: The life that runs.
        self._life: int | None = None
        #: Where the first life tells that it trains: others that use torch are let be.
        self._trains: tuple[int, int] | None = os.pipe()
        self._random = random.getstate()
        self._offsets = _offsets()
        self._handlers = {number: signal.getsignal(number) for number in OWN_SIGNALS}
        self._exit: Callable[[int], NoReturn] = getattr(os._exit, "__wrapped__", os._exit)

    def _hello(self) -> TemplateHello:
        return {"t": "template", "pid": self._pid}

    def serve(self) -> str | None:
        """Returns in a life (None), or where there can be none (why)."""
        _flush()
        _end_threads()
        Ledger.begin_template()
        for number in OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        try:
            go = self._fork()
        except OSError as error:
            self._put_back_signals()
            return str(error)
        if go is None:
            return None
        # OpenBLAS ends its threads before a fork, by itself. What is there now would be missing in a life.
        threads = _other_threads()
        if not threads:
            return self._attend(go)
        os.close(go)  # it ends
        os.waitpid(self._life or 0, 0)
        self._put_back_signals()
        return "other threads run: %s" % ", ".join(threads)

    def _attend(self, go: int) -> None:
        """To one life after the other. Returns in a life."""
        try:
            while True:
                os.write(go, b"1")
                os.close(go)
                self._await_training()
                status = self._wait()
                order = self._order()
                if order is None:
                    self._end(status)
                for file, offset in self._offsets.items():
                    os.lseek(file, offset, os.SEEK_SET)
                fork = self._fork()
                if fork is None:
                    _adopt(order.get("env") or {})
                    return
                go = fork
        except BaseException:
            if os.getpid() != self._pid:
                raise
            if self._life is not None:
                os.kill(self._life, signal.SIGKILL)
            self._exit(70)

    def _await_training(self) -> None:
        """A process that never trains is none of ours: a shell script may have several that use torch before the one that does."""
        if self._trains is None:
            return
        reading, writing = self._trains
        self._trains = None
        os.close(writing)
        if os.read(reading, 1) != b"1":
            _, status = os.waitpid(self._life or 0, 0)
            self._end_as(status)
        os.close(reading)

    def _wait(self) -> int:
        """Tells of the life, and how it ended: its status."""
        pid = self._life or 0
        self._line.send({"t": "life", "pid": pid})
        _, status = os.waitpid(pid, 0)
        self._life = None
        killed = os.WIFSIGNALED(status)
        code = None if killed else os.WEXITSTATUS(status)
        self._line.send({"t": "died", "pid": pid, "code": code, "signal": os.WTERMSIG(status) if killed else None})
        return status

    def _order(self) -> Message | None:
        """The next order for a template; None: it is to end. Those that were meant for its life are passed over."""
        while True:
            order = self._line.receive()
            if order is None or order.get("t") == "end":
                return None
            if order.get("t") == "life":
                return order

    def _fork(self) -> int | None:
        """The pipe that lets the life go; None in the life, once it has been let go."""
        reading, writing = os.pipe()
        self._lives.forking = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer Pythons warn of threads: those that stay are looked for
                self._life = os.fork()
        finally:
            self._lives.forking = False
        if self._life != 0:
            os.close(reading)
            return writing
        os.close(writing)
        if os.read(reading, 1) != b"1":
            self._exit(0)
        os.close(reading)
        self._line.forget()
        random.setstate(self._random)  # Python seeds a child anew
        self._put_back_signals()
        trains = self._trains
        if trains is not None:
            os.close(trains[0])
        self._lives.become(self._pid, None if trains is None else trains[1])
        return None

    def _put_back_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _end(self, status: int) -> NoReturn:
        if status == 0:
            from .ancestors import end_ancestors

            end_ancestors()
        self._end_as(status)

    def _end_as(self, status: int) -> NoReturn:
        """As the last life did."""
        if os.WIFSIGNALED(status):
            import resource

            number = os.WTERMSIG(status)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(self._pid, number)
        self._exit(os.WEXITSTATUS(status))


def _import_ahead(torch: Torch) -> None:
    """Optimizers import this when they are made, which takes seconds: once for all lives."""
    if hasattr(torch, "_disable_dynamo"):
        importlib.import_module("torch._dynamo")


def _adopt(env: dict[str, str]) -> None:
    """Takes variables that a start would have been given. torch may have read its allocator's before."""
    os.environ.update(env)
    settings = env.get("PYTORCH_CUDA_ALLOC_CONF")
    if settings is not None:
        sys.modules["torch"].cuda.memory._set_allocator_settings(settings)


def _flush() -> None:
    """What lies in buffers would be written by every life."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    ctypes.CDLL(None).fflush(None)


def _end_threads() -> None:
    """Those that can be ended, and are there again when they are needed: OpenMP's, where the library can, and tqdm's monitor."""
    for thread in threading.enumerate():
        if type(thread).__name__ == "TMonitor" and hasattr(thread, "exit"):
            thread.exit()  # pyright: ignore[reportAttributeAccessIssue]
    pause = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if pause is not None:
        pause(PAUSE_HARD)


def _driver_is_up() -> bool:
    """Whether something has called cuInit: no child can use CUDA then."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    context = ctypes.c_void_p()
    return driver.cuCtxGetCurrent(ctypes.byref(context)) != NOT_INITIALIZED


def _other_threads() -> list[str]:
    """Their names. Those that have just ended may still be shown for a moment."""
    others: list[str] = []
    for pause in (0.001, 0.01, 0.05, 0.0):
        names = [
            _name_of(thread) for thread in os.listdir("/proc/self/task") if int(thread) != threading.get_native_id()
        ]
        others = [name for name in names if name not in ("", *FORK_SAFE)]
        if not others:
            break
        time.sleep(pause)
    return others


def _name_of(thread: str) -> str:
    """Empty: it is gone."""
    try:
        with open("/proc/self/task/%s/comm" % thread) as file:
            return file.read().strip()
    except OSError:
        return ""


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _sockets() -> set[int]:
    """Files that are sockets, but for the standard ones."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                found.add(int(name))
        except OSError:
            pass  # that of the listing itself
    return found


def _offsets() -> dict[int, int]:
    """Where each open file stands: parent and child share that. Standard output and error only ever go on."""
    import stat

    found: dict[int, int] = {}
    for file in map(int, os.listdir("/proc/self/fd")):
        try:
            if file not in (1, 2) and stat.S_ISREG(os.fstat(file).st_mode):
                found[file] = os.lseek(file, 0, os.SEEK_CUR)
        except OSError:
            pass
    return found
