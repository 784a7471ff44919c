"""What started this process within the launch: a shell script, a launcher, a parent that spawned it."""

from __future__ import annotations

import os
import signal

#: The name of the supervisor's process, as the kernel cuts it.
SUPERVISOR = "oomtune-supervi"


def end_ancestors() -> None:
    """Ends them, outermost first, so that none goes on with what follows the training. Without a supervisor above them
    they are not ours to end."""
    for pid in reversed(_ancestors()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # gone already


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
