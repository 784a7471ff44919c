"""The end of a script in a fork: all that an interpreter does at its exit but taking itself apart. That costs nine tenths of a
fork's time, as every page of torch that it goes through is copied first.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

_exit = os._exit  # the hook wraps it


def _status(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    sys.excepthook(type(error), error, error.__traceback__)
    return 1


def end() -> None:
    """Never returns; within `except` it is the end by that error. An interrupt is the interpreter's own affair."""
    error = sys.exc_info()[1]
    if isinstance(error, KeyboardInterrupt):
        raise error
    status = _status(error)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or taken away
            pass
    _exit(status)
