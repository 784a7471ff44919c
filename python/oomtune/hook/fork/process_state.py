"""What a fork shares with its parent, or loses: threads, children, sockets, file positions, CUDA."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import threading
import time

#: Threads, by name, that a library starts anew in a forked child: jemalloc's, which pyarrow brings.
FORK_SAFE = ("jemalloc_bg_thd",)
#: CUDA_ERROR_NOT_INITIALIZED
NOT_INITIALIZED = 3
#: omp_pause_hard: OpenMP gives up its threads.
PAUSE_HARD = 2


def flush_streams() -> None:
    """Writes what is buffered: every life would write it again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    ctypes.CDLL(None).fflush(None)


def end_restartable_threads() -> None:
    """Ends threads that are started again when needed: OpenMP's, if the library can, and tqdm's monitor."""
    for thread in threading.enumerate():
        if type(thread).__name__ == "TMonitor" and hasattr(thread, "exit"):
            thread.exit()  # pyright: ignore[reportAttributeAccessIssue]
    pause = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if pause is not None:
        pause(PAUSE_HARD)


def other_threads() -> list[str]:
    """Names of this process's other threads. The kernel may still list, for a moment, threads that have just ended."""
    others: list[str] = []
    for pause in (0.001, 0.01, 0.05, 0.0):
        names = [
            _thread_name(thread) for thread in os.listdir("/proc/self/task") if int(thread) != threading.get_native_id()
        ]
        others = [name for name in names if name not in ("", *FORK_SAFE)]
        if not others:
            break
        time.sleep(pause)
    return others


def _thread_name(thread: str) -> str:
    """Empty if the thread is gone."""
    try:
        with open("/proc/self/task/%s/comm" % thread) as file:
            return file.read().strip()
    except OSError:
        return ""


def cuda_is_initialized() -> bool:
    """True if something has called cuInit: no child can use CUDA then."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    context = ctypes.c_void_p()
    return driver.cuCtxGetCurrent(ctypes.byref(context)) != NOT_INITIALIZED


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def open_sockets() -> set[int]:
    """Descriptors that are sockets, except the standard streams."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                found.add(int(name))
        except OSError:
            pass  # the descriptor of the listing itself
    return found


def file_positions() -> dict[int, int]:
    """Position, in bytes, of each open regular file: parent and child share it. Standard output and error only move on."""
    found: dict[int, int] = {}
    for file in map(int, os.listdir("/proc/self/fd")):
        try:
            if file not in (1, 2) and stat.S_ISREG(os.fstat(file).st_mode):
                found[file] = os.lseek(file, 0, os.SEEK_CUR)
        except OSError:
            pass
    return found
