"""Gradient accumulation when each batch of the user's loop comes as several micro-batches from the loader.

The loop iterates once per micro-batch and calls step, zero_grad and the like each time; only the calls at the last micro-batch
of a batch take effect. Which micro-batch the loop works on follows from the number of batches that it has asked for, minus
those that it (or accelerate, or Lightning) has fetched ahead.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Optimizer, Torch
    from ..watch.optimizers import Optimizers


class MicroBatch:
    """Part `index` of `count` of the user's batch number `batch`; its share of the batch's mean loss is `weight`."""

    __slots__ = ("batch", "index", "count", "weight")

    def __init__(self, batch: int, index: int, count: int, weight: float) -> None:
        self.batch = batch
        self.index = index
        self.count = count
        self.weight = weight


class GradientAccumulator:
    def __init__(self) -> None:
        self.engaged = False
        #: A framework accumulates itself, so that step takes effect as it says; gradients are weighted here.
        self.weighs = False
        #: The script's own batches per optimizer step; corrected at the first step seen.
        self.own_accumulation = 1
        #: Optimizers with a skipped step: their gradients must not be zeroed before the step that takes effect.
        self._held: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._lookahead: int | None = None
        self._calls = 0
        self._backwards = 0
        self._handed: deque[MicroBatch] = deque()
        self._dropped = 0

    def engage(self) -> None:
        self.engaged = True

    def release(self) -> None:
        self.engaged = False
        self._held.clear()

    def start_pass(self) -> None:
        """A new pass over the loader begins. Forgets what an interrupted pass left behind."""
        self._calls = self._backwards = self._dropped = 0
        self._handed.clear()
        self._held.clear()

    def forget_lookahead(self, own_accumulation: int) -> None:
        """Another loop over another loader begins, which may fetch ahead differently."""
        self._lookahead = None
        self.own_accumulation = own_accumulation

    def batch_requested(self) -> None:
        """The loop asks for a batch (and may get none, at the end)."""
        self._calls += 1

    def batch_handed_out(self, micro: MicroBatch) -> None:
        self._handed.append(micro)
        while len(self._handed) > 4096:
            self._handed.popleft()
            self._dropped += 1

    @property
    def current(self) -> Any:
        """The micro-batch that the loop works on; None before the first."""
        position = self._calls - 1 - (self._lookahead or 0) - self._dropped
        if not self._handed or position >= len(self._handed):
            return None
        return self._handed[max(position, 0)]

    @property
    def accumulating(self) -> bool:
        """Whether calls of step and the like have no effect now: the micro-batch is not the last of its step."""
        if not self.engaged:
            return False
        micro = self.current
        if micro is None:
            return False
        return micro.index < micro.count - 1 or (micro.batch + 1) % self.own_accumulation != 0

    @property
    def prefetched(self) -> int:
        """How many batches the loop fetches ahead."""
        return self._lookahead or 0

    @property
    def exchanges_gradients(self) -> bool:
        """Whether this micro-batch's backward pass must exchange gradients between ranks."""
        return self._lookahead is None or not self.accumulating

    def backward(self) -> float:
        """A backward pass begins. Returns the weight of its gradients."""
        self._backwards += 1
        if not self.engaged and not self.weighs:
            return 1.0
        micro = self.current
        return 1.0 if micro is None else micro.weight

    def may_step(self, optimizer: Optimizer, closure: bool = False) -> bool:
        """The loop calls optimizer.step(). Returns whether it takes effect. `closure`: the backward pass is part of the step."""
        worked = min(self._calls, self._backwards + closure)
        if self._lookahead is None and worked:
            # Fetched ahead: batches asked for, minus backward passes done.
            self.own_accumulation = max(self.own_accumulation, worked)
            self._lookahead = self._calls - worked
        if self.accumulating:
            self._held.add(optimizer)
            return False
        return True

    def stepped(self, optimizer: Optimizer) -> None:
        self._held.discard(optimizer)

    def held_optimizers(self) -> list[Any]:
        return list(self._held)


def patch_step_calls(
    torch: Torch, accumulator: GradientAccumulator, optimizers: Optimizers, controlled: Callable[[], bool]
) -> None:
    """Patches what a loop calls at each step. `controlled()`: the loop runs longer than the script says; then learning-rate
    schedules stand still, as some fail past their end and memory does not depend on them."""
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_"):
            original = getattr(module, name, None)
            if original is not None and not hasattr(original, "_oomtune"):
                setattr(module, name, _clip(torch, accumulator, optimizers, original))
    for kind in _scalers(torch):
        for name in ("step", "update", "unscale_"):
            if name in kind.__dict__:
                setattr(kind, name, _scaler_call(accumulator, kind.__dict__[name], name))
    kinds: list[Any] = list(torch.optim.lr_scheduler.__dict__.values())
    for kind in kinds:
        if isinstance(kind, type) and "step" in kind.__dict__:
            kind.step = _schedule(accumulator, controlled, kind.__dict__["step"])
    averaged = torch.optim.swa_utils.AveragedModel
    averaged.update_parameters = _skipped(accumulator, averaged.update_parameters)


def _schedule(accumulator: GradientAccumulator, controlled: Callable[[], bool], original: Call) -> Call:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun = hasattr(self, "_last_lr")  # its first step is part of its constructor
        if accumulator.accumulating or (begun and controlled()):
            return None
        return original(self, *args, **kwargs)

    return step


def _scalers(torch: Torch) -> set[Any]:
    kinds = [torch.cuda.amp.GradScaler, getattr(torch.amp, "GradScaler", None) if hasattr(torch, "amp") else None]
    return {kind for kind in kinds if kind is not None}


def _skipped(accumulator: GradientAccumulator, original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if accumulator.accumulating:
            return None
        return original(*args, **kwargs)

    return call


def _scaler_call(accumulator: GradientAccumulator, original: Call, name: str) -> Call:
    """For a script's own loss scaler. Its first step() also shows how many batches the loop fetches ahead."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name != "step":
            return None if accumulator.accumulating else original(self, *args, **kwargs)
        optimizer = args[0] if args else kwargs["optimizer"]
        if not accumulator.may_step(optimizer):
            return None
        result = original(self, *args, **kwargs)
        # Also if it skipped the step for infinite gradients: those must be zeroed.
        accumulator.stepped(optimizer)
        return result

    return call


def _clip(torch: Torch, accumulator: GradientAccumulator, optimizers: Optimizers, original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if accumulator.accumulating:
            return torch.zeros(())
        if optimizers.scaling is not None and optimizers.scaling.on:
            optimizers.scaling.set_right()
        return original(*args, **kwargs)

    setattr(call, "_oomtune", True)
    return call
