"""For Ray Tune: trials that do not fail for memory."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable, Union

from ..effective_batch import in_micro_batches
from ..errors import OomtuneError

#: An effective batch, or what takes one from a trial's configuration.
EffectiveBatch = Union[int, Callable[[Any], int]]


def memory_safe(
    effective_batch: EffectiveBatch, *, micro_batch: int | None = None, if_nothing_fits: dict[str, Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]:
    """A decorator for a trainable `train(config, micro_batch, accumulation)`: runs a trial in as large micro-batches as fit.

    `effective_batch` is a number, or a function of the configuration: `lambda config: config["batch"]`. The two sizes make it up
    exactly, whatever fits: trials differ by their configuration only. `micro_batch`: the largest to try.

    A trial of which not even one sample fits ends without an error, and reports `if_nothing_fits` (default: `{"out_of_memory":
    True}`): name the metric of the run there with its worst value, `{"loss": float("inf")}`.
    """

    def decorator(trainable: Callable[..., Any]) -> Callable[[Any], Any]:
        @functools.wraps(trainable)
        def safe(config: Any) -> Any:
            effective = effective_batch if isinstance(effective_batch, int) else effective_batch(config)
            try:
                return in_micro_batches(functools.partial(trainable, config), effective, micro_batch)
            except OomtuneError as error:
                if error.code != "OOMTUNE_EXHAUSTED":
                    raise
                tune: Any = importlib.import_module("ray.tune")
                tune.report(if_nothing_fits or {"out_of_memory": True})
                return None

        # Ray tells functions of one parameter from others by their signature.
        del safe.__dict__["__wrapped__"]
        return safe

    return decorator
