"""The connection to the worker: JSON lines over a unix socket."""

from __future__ import annotations

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from socket import socket
    from typing import Callable

    from ..messages import ForkServerHello, Hello, SentMessage
    from ..types import Message


#: Seconds between two looks for a worker that has gone.
AGAIN = 1.0


class Connection:
    """Connects when the first message is sent, so that processes that never train never connect. `returns`: a worker that is
    gone may come back, as jobs outlive their daemon."""

    def __init__(self, path: str | None, hello: Callable[[], Hello | ForkServerHello], returns: bool = False) -> None:
        self._path = path
        self._returns = returns
        self._looked = 0.0
        #: How often it was opened.
        self.opened = 0
        self._hello = hello
        self._lock = threading.RLock()
        self._socket: socket | None = None
        self._reader: BufferedReader | None = None
        self._pid = os.getpid()
        #: The worker is gone, or there never was one.
        self.lost = path is None

    def open(self) -> bool:
        with self._lock:
            if self._socket is not None:
                return True
            if self._path is None or os.getpid() != self._pid or (self.lost and not self._may_be_back()):
                return False
            # Not at the start: most processes never get here.
            import socket

            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.connect(self._path)
            except OSError:
                line.close()
                self.lost, self._looked = True, time.monotonic()
                return False
            self.lost = False
            self.opened += 1
            self._socket = line
            self._reader = line.makefile("rb")
        return self.send(self._hello())

    def _may_be_back(self) -> bool:
        return self._returns and time.monotonic() - self._looked >= AGAIN

    def _lose(self) -> None:
        self.lost = True
        if self._returns and self._socket is not None:
            self._socket.close()
            self._socket = self._reader = None

    def send(self, message: SentMessage) -> bool:
        """False if the worker is gone."""
        if not self.open():
            return False
        import json

        data = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        with self._lock:
            return self._write(data) or (self._returns and self.open() and self._write(data))

    def _write(self, data: bytes) -> bool:
        try:
            if self._socket is not None:
                self._socket.sendall(data)
            return self._socket is not None
        except OSError:
            self._lose()
            return False

    def poll(self) -> Message | None:
        """A message that has come already; None: none has, or the worker is gone."""
        if self._socket is None:
            return None
        import select

        waits = select.poll()  # select() takes no descriptor above 1023
        waits.register(self._socket, select.POLLIN)
        return self.receive() if waits.poll(0) else None

    def receive(self) -> Message | None:
        """Waits for the next message, without a time limit; None if the worker is gone."""
        if not self.open():
            return None
        import json

        while True:
            try:
                line = b"" if self._reader is None else self._reader.readline()
            except OSError:
                line = b""
            if not line.endswith(b"\n"):
                self.lost = True
                return None
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message  # pyright: ignore[reportUnknownVariableType]

    def forget(self) -> None:
        """In a forked child: closes its copy of the parent's connection."""
        self.lost, self._returns = True, False
        self._lock = threading.RLock()
        self._reader = None
        if self._socket is not None:
            try:
                os.close(self._socket.detach())
            except OSError:
                pass
            self._socket = None

    def reopen_in_fork(self) -> None:
        """In a life: it opens a connection of its own."""
        self.forget()
        self.lost = self._path is None
        self._pid = os.getpid()

    def descriptors(self) -> set[int]:
        return set() if self._socket is None else {self._socket.fileno()}

    def close(self) -> None:
        with self._lock:
            if self._socket is not None:
                import socket

                try:
                    self._socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
