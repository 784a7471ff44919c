"""Calls a training function with as large a micro-batch as fits, and as many of them as keep the effective batch."""

from __future__ import annotations

import functools
import logging

from .errors import OomtuneError
from .hook.watch.world import world_size_now
from .out_of_memory import free_memory, in_search, is_out_of_memory, let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

_LOG = logging.getLogger("oomtune")


def keep_effective_batch(
    effective_batch: int, *, micro_batch: int | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for `train(micro_batch, accumulation, …)`: the two make up the effective batch, exactly.

    The first try is the whole batch, or the largest part of it that is at most `micro_batch`. Each time that memory runs out the
    function is called again with the next smaller micro-batch that divides the effective batch.

    The decorated function raises OomtuneError: OOMTUNE_EXHAUSTED where one sample does not fit, OOMTUNE_USAGE where several ranks
    train, which would have to agree.
    """
    if effective_batch < 1:
        raise ValueError("effective_batch: expected at least 1, got %r" % effective_batch)

    def decorator(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def train(*args: Any, **kwargs: Any) -> Any:
            call = functools.partial(_call, function, args, kwargs)
            return in_micro_batches(call, effective_batch, micro_batch)

        return train

    return decorator


def _call(function: Callable[..., Any], args: Any, kwargs: Any, micro_batch: int, accumulation: int) -> Any:
    return function(micro_batch, accumulation, *args, **kwargs)


def in_micro_batches(train: Callable[[int, int], Any], effective_batch: int, micro_batch: int | None = None) -> Any:
    """What `train(micro_batch, accumulation)` returns for the first of the sizes that fits. Raises as keep_effective_batch()."""
    if world_size_now() > 1:
        raise OomtuneError(
            "OOMTUNE_USAGE",
            "Several ranks train here: one that runs out of memory cannot have the others begin again.",
            "Start the ranks with `oomtune run`, which finds a size for all of them.",
        )
    for micro in divisors(effective_batch, micro_batch):
        try:
            return train(micro, effective_batch // micro)
        except Exception as error:
            if in_search() or not is_out_of_memory(error):
                raise
            _LOG.warning("out of memory with micro-batch %d of an effective batch of %d", micro, effective_batch)
            let_go(error)
        free_memory()
    raise OomtuneError(
        "OOMTUNE_EXHAUSTED",
        "Not even a micro-batch of one sample fits.",
        "Use a smaller model, mixed precision or activation checkpointing, or a device with more memory.",
    )


def divisors(effective_batch: int, at_most: int | None = None) -> Iterator[int]:
    """Micro-batches that make up the effective batch exactly, the largest first."""
    for micro in range(min(effective_batch, at_most or effective_batch), 0, -1):
        if effective_batch % micro == 0:
            yield micro
