"""The process that waits at the fork point, and is forked for each life. Nothing here may raise into the script's own frames."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import sys
import warnings

from ..report.connection import Connection
from ..watch.memory import Ledger
from .process_state import end_monitors, end_workers, file_positions, flush_streams, other_threads, start_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, NoReturn, Sequence

    from ..hook import Hook
    from ..messages import ForkServerHello
    from ..types import Message
    from .fork_point import ForkPoint


NONE: dict[str, str] = {}
#: The fork server reaps its lives itself and ends at once when told to, whatever the script does about these.
OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class ForkServer:
    def __init__(self, hook: Hook, fork_point: ForkPoint) -> None:
        self._fork_point = fork_point
        self._settings = hook.settings
        self._connection = Connection(hook.settings.socket_path, self._hello)
        self.pid = os.getpid()
        self._spare = False
        #: Variables that each life gets.
        self._env: dict[str, str] = {}
        #: Pid of the life that runs.
        self._life: int | None = None
        #: (read end, write end) of the pipe on which the first life tells that it trains; None: it has told.
        self._training_pipe: tuple[int, int] | None = os.pipe()
        self._random = random.getstate()
        self._positions = file_positions()
        self._handlers = {number: signal.getsignal(number) for number in OWN_SIGNALS}
        self._exit: Callable[[int], NoReturn] = getattr(os._exit, "__wrapped__", os._exit)

    def _hello(self) -> ForkServerHello:
        arguments = self._fork_point.arguments
        return {"t": "fork_server", "pid": self.pid, "arguments": None if arguments is None else arguments.words}

    def serve(self) -> str | None:
        """Forks lives until told to end. Returns None in each life; in this process only if it cannot be forked: why."""
        flush_streams()
        end_monitors()
        end_workers()
        _take_signals()
        try:
            release = self._fork()
        except OSError as error:
            self._go_on()
            return str(error)
        if release is None:
            return None
        # OpenBLAS ends its threads before a fork, by itself. Threads that are there now would be missing in a life.
        threads = other_threads()
        if not threads:
            return self._serve_lives(release)
        os.close(release)  # ends the life
        os.waitpid(self._life or 0, 0)
        self._go_on()
        return "other threads run: %s" % ", ".join(threads)

    def discard(self) -> None:
        """In a job that has left it to its spare, or cannot be forked."""
        for end in self._training_pipe or ():
            os.close(end)

    def begin_spare(self) -> None:
        """In a spare: it is the fork server from now on. Nothing tells of its training, as it is asked for each life."""
        self.pid = os.getpid()
        self._connection.reopen_in_fork()
        self.discard()
        self._training_pipe, self._spare = None, True
        _take_signals()

    def first_order(self) -> dict[str, str] | None:
        """In a spare: waits. The variables of the search; None: it is not needed any more."""
        order = self._receive_order()
        return None if order is None else order.get("env") or {}

    def serve_search(self, env: dict[str, str]) -> None:
        """In a spare: forks lives until told to end. Returns only in a life."""
        self._env = env
        try:
            release = self._fork_life()
        except OSError:
            self.end()
        if release is not None:
            self._serve_lives(release)

    def end(self) -> NoReturn:
        """In a spare: how the job has ended is known already."""
        self._exit(0)

    def _serve_lives(self, release: int) -> None:
        """One after the other. Returns only in a life."""
        try:
            while True:
                self._release(release)
                self._await_training()
                life = self._life or 0
                self._connection.send({"t": "life", "pid": life})
                self._fork_point.look_ahead()
                order, status = self._order_before_end(life), 0
                early = order is not None
                if not early:
                    status = self._await_end(life)
                    order = self._receive_order()
                if order is None or order.get("t") == "end":  # which a life that is still there has been told as well
                    self._end(status)
                forked = self._fork_life(order.get("env") or {}, order.get("arguments"))
                if forked is None:
                    return
                if early:
                    self._await_end(life)
                release = forked
        except BaseException:
            if os.getpid() != self.pid:
                raise
            if self._life is not None:
                os.kill(self._life, signal.SIGKILL)
            self._exit(70)

    def _release(self, release: int) -> None:
        """Lets the life go on, which finds files as they stood."""
        for file, position in self._positions.items():
            os.lseek(file, position, os.SEEK_SET)
        with contextlib.suppress(BrokenPipeError):  # it was killed, as its end will say
            os.write(release, b"1")
        os.close(release)

    def _order_before_end(self, life: int) -> Message | None:
        """An order that comes while the life is still there: where CUDA is used a process takes a fifth of a second to end, in which the next one
        starts the driver. None: the life has ended, or cannot be watched (before Linux 5.3 or Python 3.9)."""
        try:
            watched = os.pidfd_open(life)
        except (AttributeError, OSError):
            return None
        # No select(), which takes no descriptor above 1023: a script may have as many files open.
        waits = select.poll()
        for each in (watched, *self._connection.descriptors()):
            waits.register(each, select.POLLIN)
        try:
            while watched not in [descriptor for descriptor, _ in waits.poll()]:
                order = self._connection.receive()
                if order is None or order.get("t") in ("life", "end"):
                    return order
            return None
        finally:
            os.close(watched)

    def _fork_life(self, env: Mapping[str, str] = NONE, arguments: Sequence[str] | None = None) -> int | None:
        """As _fork(). The life finds these variables and, if any are given, these arguments."""
        release = self._fork({**self._env, **env})
        if release is None and self._fork_point.arguments is not None and arguments is not None:
            self._fork_point.arguments.words = arguments
            self._settings.read_again(os.environ)
        return release

    def _await_training(self) -> None:
        """A process that never trains is not ours to serve: a shell script may run several that use torch before the one that does."""
        if self._training_pipe is None:
            return
        reading, writing = self._training_pipe
        self._training_pipe = None
        os.close(writing)
        if os.read(reading, 1) != b"1":
            _, status = os.waitpid(self._life or 0, 0)
            self._end_as(status)
        os.close(reading)

    def _await_end(self, life: int) -> int:
        """Tells the worker of the life's end; returns its wait status."""
        _, status = os.waitpid(life, 0)
        if self._life == life:
            self._life = None
        killed = os.WIFSIGNALED(status)
        code = None if killed else os.WEXITSTATUS(status)
        self._connection.send(
            {"t": "died", "pid": life, "code": code, "signal": os.WTERMSIG(status) if killed else None}
        )
        return status

    def _receive_order(self) -> Message | None:
        """The next order for the fork server; None: end. Skips orders that were meant for the life."""
        while True:
            order = self._connection.receive()
            if order is None or order.get("t") == "end":
                return None
            if order.get("t") == "life":
                return order

    def _fork(self, env: Mapping[str, str] = NONE) -> int | None:
        """In the fork server, the write end of the pipe that releases the life; in the life, which gets these variables, None once it is
        released."""
        reading, writing = os.pipe()
        Ledger.disown()
        self._fork_point.forking = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer Pythons warn of threads: we look for them ourselves
                self._life = os.fork()
        finally:
            self._fork_point.forking = False
        if self._life != 0:
            os.close(reading)
            return writing
        os.close(writing)
        _adopt_environment(env)
        # Where the script goes on from the reading of its arguments, it may yet set what the driver reads.
        if self._fork_point.cuda and self._fork_point.arguments is None:
            start_driver()
        if os.read(reading, 1) != b"1":
            self._exit(0)
        os.close(reading)
        self._connection.forget()
        random.setstate(self._random)  # Python reseeds a child
        self._restore_signals()
        pipe = self._training_pipe
        if pipe is not None:
            os.close(pipe[0])
        self._fork_point.begin_life(self.pid, None if pipe is None else pipe[1])
        return None

    def _go_on(self) -> None:
        """As the process that was started."""
        Ledger.adopt()
        self._restore_signals()

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _end(self, status: int) -> NoReturn:
        if self._spare:
            self.end()
        if status == 0:
            from ..ancestors import end_ancestors

            end_ancestors()
        self._end_as(status)

    def _end_as(self, status: int) -> NoReturn:
        """Ends this process as the last life ended, without a core dump of its own."""
        if os.WIFSIGNALED(status):
            import resource

            number = os.WTERMSIG(status)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(self.pid, number)
        self._exit(os.WEXITSTATUS(status))


def _take_signals() -> None:
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _adopt_environment(env: Mapping[str, str]) -> None:
    """Sets variables that a start would have been given. torch may have read its allocator's before: set them there, too."""
    os.environ.update(env)
    settings = env.get("PYTORCH_CUDA_ALLOC_CONF")
    if settings is not None:
        sys.modules["torch"].cuda.memory._set_allocator_settings(settings)
