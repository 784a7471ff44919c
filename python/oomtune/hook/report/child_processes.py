"""Reports what ends a training in a process that the script has started by multiprocessing (torch.multiprocessing.spawn): such a process
prints or hands on its exceptions itself, and its parent's, which comes after, tells nothing of the state of the training."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..hook import Hook


def report_ends(hook: Hook, process: Any) -> None:
    original = process.BaseProcess.run

    @functools.wraps(original)
    def run(self: Any) -> None:
        try:
            original(self)
        except BaseException as error:
            raised = _raised(error)
            # What ends another process, a writer of logs say, need not be the end of the job.
            if isinstance(raised, Exception) and hook.trains:
                hook.reporter.report(type(raised), raised, raised.__traceback__)
            raise

    process.BaseProcess.run = run


def _raised(error: BaseException) -> BaseException | None:
    """What was being handled as the process was told to exit: torch's ends so after it has written its traceback for the parent."""
    return error.__context__ if isinstance(error, SystemExit) else error
