"""Watches optimizer steps. LR schedulers, accelerate and others wrap `step` on the instance, so the class is patched, before
the script makes an instance."""

from __future__ import annotations

import functools
import weakref

from .other_optimizers import OtherOptimizers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..apply.gradient_accumulator import GradientAccumulator
    from ..apply.precision import LossScaling
    from ..types import Call, Optimizer, StepListener, Torch


class Optimizers:
    def __init__(self, torch: Torch, accumulator: GradientAccumulator, listener: StepListener) -> None:
        self._torch = torch
        self._accumulator = accumulator
        self._listener = listener
        #: The optimizer whose step() runs; others' steps within it are its own affair.
        self._stepping: Optimizer | None = None
        self._known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: The number of optimizers made so far.
        self.made = 0
        #: Optimizers that had no state before their first probed step: their state can be made again.
        self._lazy: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: Optimizers that have ever stepped, and how often each has stepped since `reset_state()`.
        self._moving: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._steps: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self.active = True
        #: What runs in place of an optimizer's own step, with the same arguments.
        self.steps_instead: weakref.WeakKeyDictionary[Optimizer, Call] = weakref.WeakKeyDictionary()
        #: Is given each optimizer when it has been made.
        self.made_one: Call | None = None
        #: The hook's own loss scaler; None: there is none.
        self.scaling: LossScaling | None = None
        self._others = OtherOptimizers(torch)

    def install(self) -> None:
        base = self._torch.optim.Optimizer
        original = base.__init__
        watch = self

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            watch.add(self)

        base.__init__ = __init__
        base.zero_grad = self._guarded_zero_grad(base.zero_grad)
        module = self._torch.nn.Module
        module.zero_grad = self._guarded_zero_grad(module.zero_grad)

    def add(self, optimizer: Optimizer) -> None:
        self._known.add(optimizer)
        self.made += 1
        kind: Any = type(optimizer)  # pyright: ignore[reportUnknownVariableType]
        if not getattr(kind.step, "_oomtune", False):
            kind.step = self._watched(kind.step)
        if self.made_one is not None:
            self.made_one(optimizer)

    def forget(self, optimizer: Optimizer) -> None:
        """One that the hook has made for itself."""
        self._known.discard(optimizer)
        self.made -= 1

    def exist(self) -> bool:
        """Whether the process has an optimizer. Where none of torch's has been made, one of another kind is looked for."""
        if not self._known and self.active:
            for optimizer in self._others.find():
                self._adopt(optimizer)
        return len(self._known) > 0

    def _adopt(self, optimizer: Optimizer) -> None:
        """One of another kind than torch's."""
        self.add(optimizer)
        kind: Any = type(optimizer)  # pyright: ignore[reportUnknownVariableType]
        if not getattr(kind.zero_grad, "_oomtune", False):
            kind.zero_grad = self._guarded_zero_grad(kind.zero_grad)

    @property
    def stepping(self) -> bool:
        """Whether an optimizer's step() runs."""
        return self._stepping is not None

    def known(self) -> list[Any]:
        return list(self._known)

    def reset_state(self) -> None:
        """Back to the state before the first step: no gradients, no optimizer state. With another order of allocations less, or
        more, would fit than in a fresh process."""
        for optimizer in self.known():
            if not optimizer.state:
                self._lazy.add(optimizer)
            elif optimizer in self._lazy:
                optimizer.state.clear()
        for parameter in self.parameters():
            parameter.grad = None
        self._steps.clear()

    def identities(self) -> frozenset[int]:
        return frozenset(id(optimizer) for optimizer in self._known)

    def step_is_missing(self, least: int = 1) -> bool:
        """Whether an optimizer that has ever stepped has stepped less than `least` times since `reset_state()`."""
        return any(self._steps.get(optimizer, 0) < least for optimizer in self._moving)

    def stop_waiting(self) -> None:
        """Waits no more for optimizers that have not stepped."""
        self._moving = weakref.WeakSet(self._steps)

    def parameters(self) -> Iterator[Any]:
        for optimizer in self.known():
            for group in optimizer.param_groups:
                yield from group["params"]

    def _guarded_zero_grad(self, original: Call) -> Call:
        watch = self

        @functools.wraps(original)
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watch.active and watch._holds(self):
                return None
            return original(self, *args, **kwargs)

        setattr(zero_grad, "_oomtune", True)
        return zero_grad

    def _holds(self, target: Any) -> bool:
        """Whether gradients of an optimizer or a module are still being accumulated."""
        held = self._accumulator.held_optimizers() if self._accumulator.engaged else ()
        if not held or not isinstance(target, self._torch.nn.Module):
            return any(optimizer is target for optimizer in held)
        theirs = {id(p) for optimizer in held for group in optimizer.param_groups for p in group["params"]}
        return any(id(parameter) in theirs for parameter in target.parameters())

    def _watched(self, original: Call) -> Call:
        watch = self

        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watch._stepping is not None or not watch.active:
                if self is not watch._stepping:
                    watch._moves(self)
                return watch._step(self, original, *args, **kwargs)
            closure = args[0] if args and callable(args[0]) else kwargs.get("closure")
            if not watch._accumulator.may_step(self, closure is not None):
                if closure is not None:
                    with watch._torch.enable_grad():
                        return closure()
                return None
            if closure is not None:
                watched = watch._watched_closure(closure)
                if "closure" in kwargs:
                    kwargs["closure"] = watched
                else:
                    args = (watched, *args[1:])
            watch._stepping = self
            try:
                if closure is None:
                    watch._listener.before_step(self)
                if watch.scaling is not None and watch.scaling.on and closure is None:
                    result = watch.scaling.step(self, args, kwargs)
                else:
                    result = watch._step(self, original, *args, **kwargs)
            finally:
                watch._stepping = None
            watch._accumulator.stepped(self)
            watch._moves(self)
            watch._listener.after_step(self)
            return result

        setattr(step, "_oomtune", True)
        # By this mark torch knows that it has wrapped a class's step already.
        setattr(step, "hooked", True)
        return step

    def _step(self, optimizer: Optimizer, original: Call, *args: Any, **kwargs: Any) -> Any:
        instead = self.steps_instead.get(optimizer)
        return (original if instead is None else instead)(optimizer, *args, **kwargs)

    def _moves(self, optimizer: Optimizer) -> None:
        self._moving.add(optimizer)
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1

    def _watched_closure(self, closure: Any) -> Call:
        @functools.wraps(closure)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._listener.before_closure()
            result = closure(*args, **kwargs)
            self._listener.before_step(None)
            return result

        return watched
