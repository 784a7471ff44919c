"""For Optuna: trials that do not fail for memory."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable, Union

from ..effective_batch import in_micro_batches
from ..errors import OomtuneError

#: An effective batch, or what makes one of a trial's parameters.
EffectiveBatch = Union[int, Callable[[Any], int]]


def memory_safe(
    effective_batch: EffectiveBatch, *, micro_batch: int | None = None
) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]:
    """A decorator for `objective(trial, micro_batch, accumulation)`: runs a trial in as large micro-batches as fit.

    `effective_batch` is a number, or a function of the trial: `lambda trial: trial.suggest_categorical("batch", [64, 256])`. The two
    sizes make it up exactly, whatever fits: trials differ by their parameters only. `micro_batch`: the largest to try.

    The trial's user attributes `micro_batch` and `accumulation` say what it ran with. A trial of which not even one sample fits is
    pruned, with the user attribute `out_of_memory`, and the study goes on.
    """

    def decorator(objective: Callable[..., Any]) -> Callable[[Any], Any]:
        @functools.wraps(objective)
        def safe(trial: Any) -> Any:
            effective = effective_batch if isinstance(effective_batch, int) else effective_batch(trial)

            def train(micro: int, accumulation: int) -> Any:
                trial.set_user_attr("micro_batch", micro)
                trial.set_user_attr("accumulation", accumulation)
                return objective(trial, micro, accumulation)

            try:
                return in_micro_batches(train, effective, micro_batch)
            except OomtuneError as error:
                if error.code != "OOMTUNE_EXHAUSTED":
                    raise
                trial.set_user_attr("out_of_memory", True)
                optuna: Any = importlib.import_module("optuna")
                raise optuna.TrialPruned(error.message) from error

        return safe

    return decorator
