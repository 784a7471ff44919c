"""The spare of a job that runs as it stands: a fork, made at its first use of the device, that waits while the job goes on.

If the job runs out of memory in its first steps, the spare becomes the fork server of the search, so that nothing is imported
again. The job itself stays the process that was started. The spare is no child of it, but of the supervisor.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

from ..ancestors import is_main
from .fork_server import ForkServer
from .process_state import (
    end_workers,
    flush_streams,
    has_room_for_copy,
    holds_file_locks,
    name_process,
    other_threads,
    process_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn

    from ..hook import Hook
    from .fork_point import ForkPoint


#: By this name the supervisor knows it (native/supervisor/process_tree.cpp).
NAME = b"oomtune-spare"
#: They have begun to write by the time of the fork, or the script has taken names from them: a search must not write there.
TRACKERS = (
    "aim", "clearml", "comet_ml", "dvclive", "mlflow", "neptune", "swanlab", "tensorboardX", "torch.utils.tensorboard", "wandb",
)  # fmt: skip


def leave_spare(hook: Hook, fork_point: ForkPoint) -> str | None:
    """Forks the spare. Returns in this process: None, or why it has none; and, later, in each life of the spare: None."""
    reason = _hindrance()
    if reason is not None:
        return reason
    flush_streams()
    end_workers()
    server = ForkServer(hook, fork_point)
    reading, writing = os.pipe()
    # The script shall not hear of a child that it has not made.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    fork_point.forking = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads: we look for them ourselves
            between = os.fork()
        if between == 0:
            _become_spare(hook, fork_point, server, (reading, writing))
            return None
        os.waitpid(between, 0)
    except OSError as error:
        if os.getpid() != server.pid:
            raise
        reason = str(error)
    finally:
        fork_point.forking = False
    signal.signal(signal.SIGCHLD, handler)
    # OpenBLAS ends its threads before a fork, by itself. Threads that are there now are missing in the spare.
    threads = other_threads()
    if threads:
        reason = "other threads run: %s" % ", ".join(threads)
    if reason is None:
        os.write(writing, b"1")
    os.close(writing)
    os.close(reading)
    server.discard()
    return reason


def _become_spare(hook: Hook, fork_point: ForkPoint, server: ForkServer, released: tuple[int, int]) -> None:
    """In a fork of the job, which forks the spare and ends. Returns only in a life."""
    leave: Callable[[int], NoReturn] = getattr(os._exit, "__wrapped__", os._exit)
    searching = False
    try:
        if os.fork() != 0:
            leave(0)
        name = process_name()
        name_process(NAME)
        fork_point.forking = False
        reading, writing = released
        os.close(writing)
        server.begin_spare()
        if os.read(reading, 1) != b"1":
            leave(0)
        os.close(reading)
        hook.connection.forget()
        env = server.first_order()
        if env is None:
            leave(0)
        searching = True
        os.environ.update(env, OOMTUNE_HOOK="probe")
        hook.begin_search()
        fork_point.import_ahead()
    except BaseException:
        if searching:
            import traceback

            traceback.print_exc()  # into the log of the search
        leave(70)
    server.serve_search(env)
    name_process(name)


def _hindrance() -> str | None:
    """What hinders it besides what hinders any fork."""
    if not is_main():
        return "it is not the process that was started"
    trackers = [name for name in TRACKERS if name in sys.modules]
    if trackers:
        return "the script has imported %s" % ", ".join(trackers)
    if holds_file_locks():
        return "the script has locked files"
    if not has_room_for_copy():
        return "there is too little memory for another process"
    return None
