"""Decides which calls of the user's loop count, when one batch of theirs is run as several micro-batches.

The loop goes round once for each micro-batch and calls step, zero_grad and the rest each time. All but those of the
last micro-batch are let pass without effect. Where the loop stands is told by the number of batches that it has asked
for, less those that it (or accelerate, or Lightning) fetched ahead.
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
    """One part of a user's batch: `index` of `count`, worth `weight` of the batch's mean loss."""

    __slots__ = ("batch", "index", "count", "weight")

    def __init__(self, batch: int, index: int, count: int, weight: float) -> None:
        self.batch = batch
        self.index = index
        self.count = count
        self.weight = weight


class Gate:
    def __init__(self) -> None:
        self.engaged = False
        #: Another one gates (a framework accumulates by itself); gradients are weighed all the same.
        self.weighs = False
        #: Batches that the script itself makes one optimizer step of; corrected at the first step seen.
        self.own_accumulation = 1
        #: Optimizers of which a step was skipped: their gradients must not be zeroed before the step that counts.
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

    def start_loop(self) -> None:
        """A new pass over the loader. What a broken-off pass left behind does not count."""
        self._calls = self._backwards = self._dropped = 0
        self._handed.clear()
        self._held.clear()

    def forget_loop(self, own_accumulation: int) -> None:
        """Another loop, over another loader: it need not be written like the one before."""
        self._lookahead = None
        self.own_accumulation = own_accumulation

    def asked(self) -> None:
        """The loop asked for a batch (and may be told that there is none)."""
        self._calls += 1

    def handed(self, micro: MicroBatch) -> None:
        self._handed.append(micro)
        while len(self._handed) > 4096:
            self._handed.popleft()
            self._dropped += 1

    @property
    def current(self) -> Any:
        """The micro-batch that the loop is working on; None before the first."""
        position = self._calls - 1 - (self._lookahead or 0) - self._dropped
        if not self._handed or position >= len(self._handed):
            return None
        return self._handed[max(position, 0)]

    @property
    def closed(self) -> bool:
        if not self.engaged:
            return False
        micro = self.current
        if micro is None:
            return False
        return micro.index < micro.count - 1 or (micro.batch + 1) % self.own_accumulation != 0

    @property
    def ahead(self) -> int:
        """Batches that the loop fetches before it works on them."""
        return self._lookahead or 0

    @property
    def syncs(self) -> bool:
        """Whether this micro-batch's gradients have to be exchanged between ranks."""
        return self._lookahead is None or not self.closed

    def backward(self) -> float:
        """A backward pass begins; returns the weight that its gradients get."""
        self._backwards += 1
        if not self.engaged and not self.weighs:
            return 1.0
        micro = self.current
        return 1.0 if micro is None else micro.weight

    def attempt(self, optimizer: Optimizer, closure: bool = False) -> bool:
        """The loop calls optimizer.step(). True: it may. `closure`: the backward pass is part of the step."""
        worked = min(self._calls, self._backwards + closure)
        if self._lookahead is None and worked:
            # Batches asked for, less backward passes done: those fetched ahead.
            self.own_accumulation = max(self.own_accumulation, worked)
            self._lookahead = self._calls - worked
        if self.closed:
            self._held.add(optimizer)
            return False
        return True

    def stepped(self, optimizer: Optimizer) -> None:
        self._held.discard(optimizer)

    def held(self) -> list[Any]:
        return list(self._held)


def gate_calls(torch: Torch, gate: Gate, optimizers: Optimizers, driven: Callable[[], bool]) -> None:
    """`driven()`: the loop goes round for longer than the script says. A schedule that counts its steps, and has an end,
    then stays where it is: memory does not depend on it."""
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_"):
            original = getattr(module, name, None)
            if original is not None and not hasattr(original, "_oomtune"):
                setattr(module, name, _clip(torch, gate, optimizers, original))
    for kind in _scalers(torch):
        for name in ("step", "update", "unscale_"):
            if name in kind.__dict__:
                setattr(kind, name, _scaler_call(gate, kind.__dict__[name], name))
    kinds: list[Any] = list(torch.optim.lr_scheduler.__dict__.values())
    for kind in kinds:
        if isinstance(kind, type) and "step" in kind.__dict__:
            kind.step = _schedule(gate, driven, kind.__dict__["step"])
    averaged = torch.optim.swa_utils.AveragedModel
    averaged.update_parameters = _skipped(gate, averaged.update_parameters)


def _schedule(gate: Gate, driven: Callable[[], bool], original: Call) -> Call:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun = hasattr(self, "_last_lr")  # its first step is part of making it
        if gate.closed or (begun and driven()):
            return None
        return original(self, *args, **kwargs)

    return step


def _scalers(torch: Torch) -> set[Any]:
    kinds = [torch.cuda.amp.GradScaler, getattr(torch.amp, "GradScaler", None) if hasattr(torch, "amp") else None]
    return {kind for kind in kinds if kind is not None}


def _skipped(gate: Gate, original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if gate.closed:
            return None
        return original(*args, **kwargs)

    return call


def _scaler_call(gate: Gate, original: Call, name: str) -> Call:
    """A script's own loss scaler. Its first step() is also where the hook learns how far the loop looks ahead."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name != "step":
            return None if gate.closed else original(self, *args, **kwargs)
        optimizer = args[0] if args else kwargs["optimizer"]
        if not gate.attempt(optimizer):
            return None
        result = original(self, *args, **kwargs)
        # Also where it skipped the step for infinite gradients: those must be zeroed.
        gate.stepped(optimizer)
        return result

    return call


def _clip(torch: Torch, gate: Gate, optimizers: Optimizers, original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if gate.closed:
            return torch.zeros(())
        if optimizers.scaling is not None and optimizers.scaling.on:
            optimizers.scaling.set_right()
        return original(*args, **kwargs)

    setattr(call, "_oomtune", True)
    return call
