"""Sees the exception that ends the script. Loaded at the start of every process: what judges it is not."""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable

    from ..messages import Raised, Said
    from ..types import ProcessState


class ExceptionReporter:
    """`describe()` gives phase, micro_batch and whether an allocation was refused; `send(message)` carries it."""

    def __init__(self, send: Callable[[Said], bool], describe: Callable[[], ProcessState]) -> None:
        self._send = send
        self._describe = describe
        self._sent = None

    @property
    def told(self) -> bool:
        return self._sent is not None

    def install(self) -> None:
        outer = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.tell(kind, error, trace)
            outer(kind, error, trace)

        sys.excepthook = excepthook
        outer_thread = threading.excepthook

        def thread_excepthook(args: Any) -> None:
            if args.exc_type is not SystemExit:
                self.tell(args.exc_type, args.exc_value, args.exc_traceback)
            outer_thread(args)

        threading.excepthook = thread_excepthook

    def tell(self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None or error is self._sent or issubclass(kind, KeyboardInterrupt):
                return
            self._sent = error
            import traceback

            from .exceptions import class_name, gradients_at, is_oom, phase_of, where

            state = self._describe()
            oom = is_oom(error, state["refused"])
            text = "".join(traceback.format_exception(kind, error, trace))
            message: Raised = {
                "t": "exception",
                "class": class_name(kind),
                "message": str(error)[:2000],
                "phase": phase_of(trace, state["phase"], state["trains"], state["ended"]),
                "frame": where(trace),
                "oom": oom,
                "kept_by": state["keeper"](trace) if oom and state["keeper"] is not None else None,
                "micro_batch": state["micro_batch"],
                "traceback": text[-4096:],
            }
            if not gradients_at(trace):
                # That they were on is not known for sure: decorators turn them off in ways that leave no frame.
                message["gradients"] = False
            self._send(message)
        except Exception:  # the user's traceback must be printed whatever happens here
            pass
