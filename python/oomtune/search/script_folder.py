"""The folder of a function's script and its values, while its search runs."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generator

PREFIX = "oomtune-function-"


@contextlib.contextmanager
def script_folder() -> Generator[str, None, None]:
    """A new folder, removed at the end. One whose process was killed is removed by the next search: it may hold a whole data set."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _remove_abandoned() -> None:
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), PREFIX + "*", "lock")):
        try:
            with open(path, "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        except OSError:
            continue  # of a search that runs, of another user, or gone meanwhile
