"""What a fork shares with its parent, or loses: threads, children, sockets, file positions, CUDA."""

from __future__ import annotations

import ctypes
import os
import re
import stat
import sys
import threading
import time

#: Threads, by name, that a library starts anew in a forked child: jemalloc's, which pyarrow brings, and the one that NVML starts in
#: NVIDIA's driver when it is asked for devices (seen in 580.159.04; nvmlShutdown does not end it). The driver is not initialized
#: by that, and a child uses it like any process: what torch offers PYTORCH_NVML_BASED_CUDA_CHECK for.
FORK_SAFE = re.compile(r"jemalloc_bg_thd|cuda[0-9a-f]{11}")
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


def end_monitors() -> None:
    """Ends tqdm's monitor, which is started again for the next bar."""
    for thread in threading.enumerate():
        if type(thread).__name__ == "TMonitor" and hasattr(thread, "exit"):
            thread.exit()  # pyright: ignore[reportAttributeAccessIssue]


def end_workers() -> None:
    """Ends OpenMP's threads, if the library can: it starts them again when they are needed."""
    pause = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if pause is not None:
        pause(PAUSE_HARD)


def other_threads() -> list[str]:
    """Names of this process's other threads. Threads that have just ended may still be listed, the longer the busier the machine is."""
    others: list[str] = []
    for pause in (0.001, 0.01, 0.05, 0.1, 0.3, 0.0):
        names = [
            _thread_name(thread) for thread in os.listdir("/proc/self/task") if int(thread) != threading.get_native_id()
        ]
        others = [name for name in names if name != "" and not FORK_SAFE.fullmatch(name)]
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


def start_driver() -> None:
    """Initializes CUDA ahead of the script, which takes a tenth of a second and no memory of a device. An error comes again when the script does."""
    try:
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        pass


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


def holds_file_locks() -> bool:
    """Locks of open files (flock) go over to a fork, which would keep them."""
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            with open("/proc/self/fdinfo/" + name) as file:
                if any(line.startswith("lock:") and " FLOCK " in line for line in file):
                    return True
        except OSError:
            pass  # the descriptor of the listing itself
    return False


def has_room_for_copy() -> bool:
    """Whether all that this process has in memory could be there once more: pages of a fork are copied when one of the two writes."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open("/proc/meminfo") as file:
        available = next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), 0)
    return resident < min([available, *_rooms_of_groups()]) / 2


def _rooms_of_groups() -> list[int]:
    """Bytes that the cgroups of this process (v2) let it have yet."""
    with open("/proc/self/cgroup") as file:
        group = next((line.rstrip().split("::", 1)[1] for line in file if line.startswith("0::")), "/")
    rooms: list[int] = []
    while True:
        try:
            with open("/sys/fs/cgroup%s/memory.max" % group) as most, open(
                "/sys/fs/cgroup%s/memory.current" % group
            ) as now:
                limit = most.read().strip()
                if limit.isdigit():
                    rooms.append(int(limit) - int(now.read()))
        except OSError:
            pass  # the root has no limit
        if group in ("/", ""):
            return rooms
        group = group.rpartition("/")[0]


def process_name() -> bytes:
    with open("/proc/self/comm", "rb") as file:
        return file.read().rstrip()


def name_process(name: bytes) -> None:
    ctypes.CDLL(None).prctl(15, name)  # PR_SET_NAME


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
