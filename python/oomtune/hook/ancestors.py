"""The processes of the launch that this one descends from: a shell script, a launcher, a spawning parent."""

from __future__ import annotations

import os
import signal

#: The supervisor's process name, as the kernel truncates it.
SUPERVISOR = "oomtune-supervi"


def end_ancestors() -> None:
    """Kills them, outermost first, so that none goes on with what follows the training. Does nothing without a supervisor
    above them: then they are not ours."""
    for pid in reversed(_ancestors()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # gone already


def is_main() -> bool:
    """Whether this is the launch's own process: its parent is the supervisor."""
    return (_name_and_parent(os.getppid())[0] or "").startswith(SUPERVISOR)


def _ancestors() -> list[int]:
    found: list[int] = []
    pid = os.getppid()
    while pid > 1:
        name, parent = _name_and_parent(pid)
        if name is None:
            return []
        if name.startswith(SUPERVISOR):
            return found
        found.append(pid)
        pid = parent
    return []


def _name_and_parent(pid: int) -> tuple[str | None, int]:
    try:
        with open("/proc/%d/stat" % pid) as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None, 0
    return head.partition("(")[2], int(tail.split()[1])
