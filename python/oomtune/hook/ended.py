"""Tells whether the training loop had ended when an error came: what is done then is no training step."""

import functools
import inspect
import sys

from .loops import Source

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Ended:
    """Knows where the script's own code goes round over its loader and where it steps. `is_user_code(path)`."""

    def __init__(self, is_user_code):
        self._is_user_code = functools.lru_cache(maxsize=None)(is_user_code)
        #: (code, loop) that goes over the loader of the training; None: it is not the script's own.
        self._loop = None
        #: (code, line) of the script from which the latest step was made.
        self._step = None

    def began(self):
        """A loop over a training loader begins. A generator's own frame is in no traceback: whoever asks it goes round."""
        self._loop = self._step = None
        for code, line in self._places(sys._getframe(1)):
            loop = None if code.co_flags & _SUSPENDED else Source(code.co_filename).loop(line)
            if loop is not None:
                self._loop = code, loop
                return

    def stepped(self):
        self._step = next(self._places(sys._getframe(1)), None)

    def at(self, trace):
        """Whether the loop had ended where this traceback comes from. What cannot be told is no."""
        if self._step is None:
            return False
        lines = {}
        while trace is not None:
            lines[trace.tb_frame.f_code] = trace.tb_lineno
            trace = trace.tb_next
        code, line = self._step
        around = Source(code.co_filename).loop(line)
        if code in lines and (lines[code] == line or (around is not None and around.holds(lines[code]))):
            return False
        if self._loop is None:
            # A library's loop: the script has gone on from the line that had it train.
            return code in lines
        code, loop = self._loop
        return code not in lines or not loop.holds(lines[code])

    def _places(self, frame):
        """The script's own functions that are running, innermost first."""
        while frame is not None:
            if self._is_user_code(frame.f_code.co_filename):
                yield frame.f_code, frame.f_lineno
            frame = frame.f_back
