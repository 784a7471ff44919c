"""A client for the few commands that read recommendations, so that this package needs no other."""

from __future__ import annotations

import os
import socket
from typing import Union
from urllib.parse import parse_qs, unquote, urlsplit

from .errors import OomtuneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Seconds to wait for a connection, and for each answer.
PATIENCE = 5.0
#: An answer of Redis: texts, numbers, lists of them, or nothing.
Answer = Union[str, int, None, "list[Any]"]


class RedisRefused(Exception):
    """Redis answered with an error."""


class RedisClient:
    """A connection to `redis://`, `rediss://` or `unix://`. Raises OomtuneError: OOMTUNE_USAGE, OOMTUNE_REDIS_UNREACHABLE."""

    def __init__(self, url: str) -> None:
        self._shown, where, login, database = _parsed(url)
        try:
            self._socket = _connected(where)
        except OSError as error:
            raise self._unreachable(error) from error
        self._file = self._socket.makefile("rb")
        try:
            if login:
                self.call("AUTH", *login)
            if database:
                self.call("SELECT", str(database))
        except (OSError, RedisRefused) as error:
            self.__exit__()
            raise self._unreachable(error) from error

    def __enter__(self) -> RedisClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def call(self, *words: str) -> Answer:
        """Raises RedisRefused, OSError."""
        return self.calls([words])[0]

    def calls(self, commands: list[tuple[str, ...]]) -> list[Answer]:
        """Sends all commands at once; the answers are in their order."""
        self._socket.sendall(b"".join(_encoded(words) for words in commands))
        return [self._answer() for _ in commands]

    def _answer(self) -> Answer:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"-":
            raise RedisRefused(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"*":
            return [self._answer() for _ in range(size)]
        text = self._file.read(size + 2)
        if len(text) < size + 2:
            raise ConnectionError("the connection was closed")
        return text[:-2].decode("utf-8", "replace")

    def _unreachable(self, error: Exception) -> OomtuneError:
        return OomtuneError(
            "OOMTUNE_REDIS_UNREACHABLE",
            "Redis at %s cannot be used: %s." % (self._shown, str(error).rstrip(".") or type(error).__name__),
            "Check the URL (OOMTUNE_REDIS_URL) and that the server runs; `oomtune doctor` looks at it.",
        )


def unix_url(path: str) -> str:
    for letter in "%?#":
        path = path.replace(letter, "%%%02X" % ord(letter))
    return "unix://" + path


def _encoded(words: tuple[str, ...]) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n%s" % (len(parts), b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))


def _parsed(url: str) -> tuple[str, tuple[Any, ...], list[str], int]:
    """(the URL without its password, where to connect, the words of AUTH, the database)"""
    try:
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme == "unix" and not parts.netloc and os.path.isabs(parts.path):
            user, password = query.get("username", ""), query.get("password", "")
            database = int(query.get("db") or 0)
            return "unix://" + parts.path, ("unix", unquote(parts.path)), _login(user, password), database
        if parts.scheme in ("redis", "rediss"):
            host, port = parts.hostname or "127.0.0.1", parts.port or 6379
            login = _login(unquote(parts.username or ""), unquote(parts.password or ""))
            shown = "%s://%s:%d" % (parts.scheme, host, port)
            return shown, (parts.scheme, host, port), login, int(parts.path.strip("/") or 0)
    except ValueError:
        pass
    raise OomtuneError(
        "OOMTUNE_USAGE",
        "Expected a Redis URL.",
        "Write redis://host:6379, rediss://user:password@host:6380/0 or unix:///path/to/redis.sock.",
    )


def _login(user: str, password: str) -> list[str]:
    return ([user] if user else []) + [password] if password else []


def _connected(where: tuple[Any, ...]) -> socket.socket:
    if where[0] == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(where[1])
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(where[1:], PATIENCE)
    if where[0] == "redis":
        return connection
    import ssl

    # a private authority by the variable that the program itself is given
    context = ssl.create_default_context()
    extra = os.environ.get("NODE_EXTRA_CA_CERTS")
    if extra:
        context.load_verify_locations(extra)
    return context.wrap_socket(connection, server_hostname=where[1])
