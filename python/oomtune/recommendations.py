"""Configurations that oomtune recorded, read from its Redis or from a file that it exported."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, cast

from .errors import OomtuneError

#: The version of records and documents that is understood.
SCHEMA = 1


@dataclass(frozen=True)
class Recommendation:
    """A configuration that ran without running out of memory. effective_batch = micro_batch x accumulation x world_size."""

    #: `<name>:<gpu>:<budget>:<n>x`
    key: str
    name: str
    #: Samples per device and forward pass.
    micro_batch: int
    #: Micro-batches per optimizer step.
    accumulation: int
    effective_batch: int
    #: Devices.
    world_size: int
    #: `off`, `bf16` or `fp16`.
    amp: str
    #: Activation checkpointing.
    checkpointing: bool
    #: The largest micro-batch that fits at all; None: not known.
    max_micro_batch: int | None
    gpu_model: str
    budget_bytes: int
    #: None: not measured.
    peak_bytes: int | None
    samples_per_s: float | None
    #: ISO 8601; None: not known.
    verified_at: str | None
    #: The record or document that it was read from, as it stands there.
    document: dict[str, Any] = field(repr=False, compare=False)


def recommended(
    name: str,
    *,
    file: str | os.PathLike[str] | None = None,
    redis: str | None = None,
    gpu_model: str | None = None,
    world_size: int | None = None,
) -> Recommendation:
    """The latest verified configuration of that name: the `--name` of a search, the stem of a script, or a whole key.

    `file` is one that `oomtune recommend NAME --format json`, `oomtune recommend --json` or `oomtune find-batch --json` wrote;
    without it the record is read from Redis: the one at `redis`, else at OOMTUNE_REDIS_URL, else oomtune's own.
    `gpu_model` ("NVIDIA H200") and `world_size` leave out what was found for others.

    Raises OomtuneError: OOMTUNE_NO_SUCH_CONFIG where nothing of that name is verified, OOMTUNE_REDIS_UNREACHABLE,
    OOMTUNE_RECORD_UNREADABLE, OOMTUNE_COMMAND_MISSING where only the program could tell, and it is not here.
    """
    where = "Redis" if file is None else os.fspath(file)
    records = _recorded(name, redis) if file is None else _in_file(os.fspath(file))
    # What is recorded of a knob of a command's own is no recommendation of a batch.
    records = [one for one in records if not one.get("knob")]
    named = [one for one in records if name in (one.get("key"), one.get("name"))]
    named = named or [one for one in records if stem_of(str(one.get("name", ""))) == name]
    fitting = [
        one
        for one in (
            _read(record, where) for record in named if record.get("status", "verified") in ("verified", "found")
        )
        if gpu_model in (None, one.gpu_model) and world_size in (None, one.world_size)
    ]
    if not fitting:
        raise OomtuneError("OOMTUNE_NO_SUCH_CONFIG", *_absent(name, where, bool(named)))
    return max(fitting, key=lambda one: one.verified_at or "")


def stem_of(name: str) -> str | None:
    """`train` of `train-1a2b3c4d`, a name that oomtune made; None: no digest is at its end."""
    found = re.match(r"^(.+)-[0-9a-f]{8}$", name)
    return None if found is None else found.group(1)


def from_search(document: dict[str, Any]) -> Recommendation:
    """What `find-batch --json` printed of a search that found something. Raises OomtuneError OOMTUNE_RECORD_UNREADABLE."""
    return _read(document, "what the search printed")


# -- where records are


def _recorded(name: str, redis: str | None) -> list[dict[str, Any]]:
    url = redis or os.environ.get("OOMTUNE_REDIS_URL") or _own_redis()
    if url is None:
        # oomtune's Redis does not run, or is a daemon's of all users: the program starts or asks it.
        from .program import call

        try:
            return list(call(["recommend", name, "--json"])["recommendations"])
        except OomtuneError as error:
            if error.code == "OOMTUNE_NO_SUCH_CONFIG":
                return []
            raise
    return _from_redis(url, name)


def _own_redis() -> str | None:
    """The URL of the Redis that oomtune started for this home, if it is there to be asked."""
    from .redis_client import unix_url

    home = os.environ.get("OOMTUNE_HOME")
    if not home:
        system = os.environ.get("OOMTUNE_SYSTEM_SOCKET", "/run/oomtune/oomtune.sock")
        if system and os.path.exists(system):
            return None
        state = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):
            state = os.path.join(os.path.expanduser("~"), ".local", "state")
        home = os.path.join(state, "oomtune")
    path = os.path.join(os.path.abspath(home), "redis", "redis.sock")
    return unix_url(path) if _listens(path) else None


def _listens(path: str) -> bool:
    import socket

    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2.0)
            connection.connect(path)
            return True
    except OSError:
        return False


def _from_redis(url: str, name: str) -> list[dict[str, Any]]:
    from .redis_client import RedisClient, RedisRefused

    prefix = "{%s}:" % (os.environ.get("OOMTUNE_PREFIX") or "oomtune")
    with RedisClient(url) as redis:
        try:
            keys: Any = redis.call("ZREVRANGE", prefix + "configs", "0", "-1")
            near = [key for key in keys if key == name or key.startswith((name + ":", name + "-"))]
            answers: list[Any] = redis.calls([("HGETALL", prefix + "config:" + key) for key in near])
        except (OSError, RedisRefused) as error:
            raise OomtuneError(
                "OOMTUNE_REDIS_UNREACHABLE",
                "Redis did not answer what is recorded: %s." % error,
                "`oomtune doctor` looks at it.",
            ) from error
    return [dict(zip(answer[::2], answer[1::2])) for answer in answers if answer]


def _in_file(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            document: Any = json.load(file)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _unreadable(path, "it is not JSON") from error
    records = _records(document)
    if records:
        return records
    raise _unreadable(path, "it holds no recommendation")


def _records(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    inside: dict[str, Any] = cast("dict[str, Any]", document)
    if "text" in inside and "format" in inside:  # recommend NAME --format json --json
        return _records(json.loads(inside["text"]))
    found: list[Any] = inside.get("recommendations", [inside])
    return [one for one in found if isinstance(one, dict)]


# -- a record


def _read(record: dict[str, Any], where: str) -> Recommendation:
    """Reads a hash of Redis, where all values are texts, and each kind of document."""
    config: dict[str, Any] = record.get("config") or record
    device: dict[str, Any] = record.get("device") or {}
    try:
        if int(record.get("schema", SCHEMA)) != SCHEMA:
            raise ValueError("a later version of oomtune wrote it")
        micro, steps, world = (int(config[one]) for one in ("micro_batch", "accumulation", "world_size"))
        peak, speed = record.get("peak_bytes"), record.get("samples_per_s")
        return Recommendation(
            key=str(record["key"]),
            name=str(record["name"]),
            micro_batch=micro,
            accumulation=steps,
            effective_batch=int(config["effective_batch"]),
            world_size=world,
            amp=str(config["amp"]),
            checkpointing=config["checkpointing"] in (True, "1"),
            max_micro_batch=_whole(record.get("max_micro_batch")),
            gpu_model=str(record.get("gpu_model") or device.get("model") or ""),
            budget_bytes=int(record.get("budget_bytes") or device.get("budget_bytes") or 0),
            peak_bytes=_whole(peak),
            samples_per_s=None if speed in (None, "") else float(speed),
            verified_at=record.get("verified_at") or None,
            document=record,
        )
    except (KeyError, TypeError, ValueError) as error:
        why = "it has no %s" % error if isinstance(error, KeyError) else str(error)
        raise _unreadable("the record %s in %s" % (record.get("key", "?"), where), why) from error


def _whole(value: Any) -> int | None:
    return None if value in (None, "") else int(value)


def _unreadable(what: str, why: str) -> OomtuneError:
    return OomtuneError(
        "OOMTUNE_RECORD_UNREADABLE",
        "A recommendation cannot be read from %s: %s." % (what, why),
        "Write it anew: oomtune recommend NAME --format json > FILE.",
    )


def _absent(name: str, where: str, demoted: bool) -> tuple[str, str]:
    if demoted:
        return (
            'No recommendation "%s" in %s is verified and of that kind.' % (name, where),
            "`oomtune recommend %s` shows what is recorded; `oomtune find-batch` finds anew." % name,
        )
    return (
        'There is no recommendation "%s" in %s.' % (name, where),
        "`oomtune recommend` lists them; `oomtune find-batch --name %s -- COMMAND` records one." % name,
    )
