"""The program `oomtune`, called from Python."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

from .errors import OomtuneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable, Mapping

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Where a wheel carries the program, and where it stands beside this package in a checkout or an npm package.
_IN_WHEEL = os.path.join(_HERE, "program", "bin", "oomtune.js")
_BESIDE = os.path.join(_HERE, os.pardir, os.pardir, "bin", "oomtune.js")
#: Seconds that the program may take to end what it started, once it is interrupted.
PATIENCE = 90


def program() -> list[str]:
    """The words that start `oomtune`: the program that came with this package, else the one on PATH.

    Raises OomtuneError OOMTUNE_COMMAND_MISSING where there is none, or no Node to run it with.
    """
    if os.path.exists(_IN_WHEEL):
        return [sys.executable, "-m", "oomtune"]
    if os.path.exists(_BESIDE):
        node = shutil.which("node")
        if node is None:
            raise OomtuneError(
                "OOMTUNE_COMMAND_MISSING",
                "Node is not on PATH, which runs oomtune.",
                "Install Node 20.17 or newer; in a notebook, put its folder into os.environ['PATH'].",
            )
        return [node, "--", os.path.normpath(_BESIDE)]
    found = shutil.which("oomtune")
    if found is None:
        raise OomtuneError(
            "OOMTUNE_COMMAND_MISSING",
            "The program oomtune is not here: this package alone has no search.",
            "Install it (npm, or the wheel of a release), or put its folder into PATH.",
        )
    return [found]


def call(
    arguments: list[str],
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Runs a verb with --json; returns its document. `progress` is given each line that it tells.

    Raises OomtuneError with the program's own code; KeyboardInterrupt once what the verb had started is ended.
    If this process is killed the program ends what it started, and itself.
    """
    env = dict(os.environ if environ is None else environ)
    env["OOMTUNE_CALLER"] = str(os.getpid())  # killed, we could not end it: it ends when we are gone
    process = subprocess.Popen(
        program() + arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        # Ctrl-C and a notebook's stop button reach the whole group: the program is told below, once.
        start_new_session=True,
    )
    try:
        output, told = _listen(process, progress)
    except BaseException:
        _interrupt(process)
        raise
    return _document(output, told, process.returncode)


def _listen(process: subprocess.Popen[bytes], progress: Callable[[str], None] | None) -> tuple[str, str]:
    """What it prints, and what it tells, which is handed on line by line."""
    import threading

    assert process.stdout is not None and process.stderr is not None
    printed: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(process.stdout, printed), daemon=True)
    reader.start()
    told: list[str] = []
    for line in process.stderr:
        text = line.decode("utf-8", "replace").rstrip("\n")
        told.append(text)
        if progress is not None:
            progress(text)
    reader.join()
    process.wait()
    return b"".join(printed).decode("utf-8", "replace"), "\n".join(told)


def _read_all(stream: IO[bytes], into: list[bytes]) -> None:
    into.append(stream.read())


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Has the program end what it started; ends it if it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _document(output: str, told: str, status: int) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(output)
    except ValueError:
        document = {}
    error: dict[str, str] | None = document.get("error")
    if error:
        raise OomtuneError(error["code"], error["message"], error["remedy"])
    if not document:
        said = (told or output).strip().splitlines()[-1:] or ["nothing"]
        raise OomtuneError(
            "OOMTUNE_INTERNAL",
            "oomtune ended with exit code %s and said: %s" % (status, said[0]),
            "Run `oomtune doctor`.",
        )
    return document
