"""Variables of the script's running functions. Before Python 3.13 a frame keeps a copy of them once anybody has looked, and
tracing its lines fills that copy again (before 3.11 it also makes one): what a step made then lives on through the next."""

import inspect
import sys
import types

#: What holds no memory to speak of.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.FunctionType)
_COPIES = sys.version_info < (3, 13)


def variables(frame):
    """(name, value) of a function's variables; the frame keeps none of them."""
    found = list(frame.f_locals.items())
    forget(frame)
    return found


def forget(frame):
    """Takes out of the frame's copy what may hold memory. A script that has called locals() sees the same dictionary:
    its plain values stay."""
    if not _COPIES or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return
    copied = frame.f_locals
    for name in [name for name, value in copied.items() if not isinstance(value, PLAIN)]:
        del copied[name]
