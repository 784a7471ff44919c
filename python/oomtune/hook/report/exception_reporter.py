"""Reports the exception that ends the script. Loaded at the start of every process; exceptions.py, which judges it, is not."""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable

    from ..messages import Raised, SentMessage
    from ..types import ProcessState


class ExceptionReporter:
    """`describe()` gives the state of the process; `send(message)` sends the report."""

    def __init__(self, send: Callable[[SentMessage], bool], describe: Callable[[], ProcessState]) -> None:
        self._send = send
        self._describe = describe
        self._sent = None

    @property
    def reported(self) -> bool:
        return self._sent is not None

    def install(self) -> None:
        outer = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.report(kind, error, trace)
            outer(kind, error, trace)

        sys.excepthook = excepthook
        outer_thread = threading.excepthook

        def thread_excepthook(args: Any) -> None:
            if args.exc_type is not SystemExit:
                self.report(args.exc_type, args.exc_value, args.exc_traceback)
            outer_thread(args)

        threading.excepthook = thread_excepthook

    def report(self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None or error is self._sent or issubclass(kind, KeyboardInterrupt):
                return
            self._sent = error
            import traceback

            from .exceptions import class_name, gradients_enabled_at, is_oom, location, oom_being_handled, phase_of

            state = self._describe()
            text = "".join(traceback.format_exception(kind, error, trace))
            oom = is_oom(error, state["refused"])
            handled = None if oom else oom_being_handled(error, trace)
            if not oom and handled is None and state["end_loop"] is not None:
                return state["end_loop"]()
            if handled is not None:
                oom, kind, error, trace = True, type(handled), handled, handled.__traceback__
            message: Raised = {
                "t": "exception",
                "class": class_name(kind),
                "message": str(error)[:2000],
                "phase": phase_of(trace, state["phase"], state["trains"], state["ended"], state["stepped"]),
                "frame": location(trace),
                "oom": oom,
                "kept_by": state["growing_variable"](trace) if oom and state["growing_variable"] is not None else None,
                "micro_batch": state["micro_batch"],
                "traceback": text[-4096:],
            }
            if state["waited_for_loader"]:
                message["waited_for_loader"] = True
            if state["without_optimizer"] and message["phase"] == "train":
                message["without_optimizer"] = True
            if oom and state["cut_calls"] is not None:
                message["cut_calls"] = state["cut_calls"]
            if not gradients_enabled_at(trace):
                # Never `true`: decorators may turn gradients off without leaving a frame.
                message["gradients"] = False
            self._send(message)
        except Exception:  # the user's traceback must be printed whatever happens here
            pass
