"""The knobs of this run, read from the environment that oomtune gives each job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping

from .hook.watch.world import world_size_now

AMP = ("off", "bf16", "fp16")


@dataclass(frozen=True)
class Config:
    """What this run is to use. effective_batch = micro_batch x accumulation x world size."""

    #: Samples per device and forward pass.
    micro_batch: int
    #: Micro-batches per optimizer step.
    accumulation: int
    effective_batch: int
    #: `off`, `bf16` or `fp16`.
    amp: str
    #: Activation checkpointing.
    checkpointing: bool
    #: `cpu` or `cuda:N`; None outside oomtune.
    device: str | None
    #: Bytes that the job may hold on one device; None: no limit known.
    budget_bytes: int | None
    #: None outside oomtune.
    job_id: str | None
    #: True on a relaunch after progress: load the last checkpoint.
    resume: bool


def _count(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("%s: expected a whole number of at least 1, got %r" % (name, text))
    return int(text)


def config(
    micro_batch: int = 1,
    accumulation: int = 1,
    amp: str = "off",
    checkpointing: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration of this run; the arguments are what holds outside oomtune.

    Raises ValueError where the environment holds something that oomtune never writes.
    """
    own = environ is None
    environ = os.environ if environ is None else environ
    micro = _count(environ, "OOMTUNE_MICRO_BATCH") or micro_batch
    steps = _count(environ, "OOMTUNE_ACCUMULATION") or accumulation
    precision = environ.get("OOMTUNE_AMP") or amp
    if precision not in AMP:
        raise ValueError("OOMTUNE_AMP: expected one of %s, got %r" % (", ".join(AMP), precision))
    world = _count(environ, "WORLD_SIZE") or (world_size_now() if own else 1)
    flag = environ.get("OOMTUNE_CHECKPOINTING", "")
    return Config(
        micro_batch=micro,
        accumulation=steps,
        effective_batch=_count(environ, "OOMTUNE_EFFECTIVE_BATCH") or micro * steps * world,
        amp=precision,
        checkpointing=flag == "1" if flag else checkpointing,
        device=environ.get("OOMTUNE_DEVICE") or None,
        budget_bytes=_count(environ, "OOMTUNE_BUDGET_BYTES"),
        job_id=environ.get("OOMTUNE_JOB_ID") or None,
        resume=environ.get("OOMTUNE_RESUME") == "1",
    )
