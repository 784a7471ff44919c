"""The outermost training calls of models, which is where the cut is made."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref

from ..watch.models import learns
from ..watch.script import before_step, running_places
from .composition import is_model
from .refusal import NOWHERE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Dict, Generator, Iterable, Mapping, Tuple

    from ..types import Call, Module, Torch
    from ..watch.optimizers import Optimizers

    Args = Tuple[Any, ...]
    Kwargs = Dict[str, Any]

#: Modules that forward a call and reduce gradients between ranks: the cut is inside of them, so that they see one call and
#: one backward pass.
PASSED = ("DistributedDataParallel", "DeepSpeedEngine")

#: Where nothing comes to a call by a backward pass, and gradients that the script sets take the place of those before.
TRANSFORMED = (
    "the model is called within torch.func (grad, vmap), where no call is cut, and gradients that are made there are not added up"
    + NOWHERE
)
#: Where a call's inputs and weights may have tangents, and its outputs with them.
FORWARD_MODE = (
    "the model is called where derivatives are computed in forward mode (torch.autograd.forward_ad), and no call is cut"
)


class ModelCalls:
    """Patches nn.Module.__call__. `take(module, args, kwargs)` runs in place of a call to be cut, and `auxiliary(module, args, kwargs)` in that
    of a call of a model that no optimizer steps (a teacher, say), or of one without gradients that a step is to follow (its targets). Before any outermost call,
    `before(module, args, kwargs)` may return (args, kwargs, a context for the call), or None to leave the call alone."""

    def __init__(self, torch: Torch, optimizers: Optimizers) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._local = threading.local()
        #: By id of each called module: (module, whether an optimizer holds weights of it, whether any of those has learned).
        self._known: dict[int, tuple[weakref.ref[Any], bool, bool]] = {}
        #: Modules that were called to be trained while they were in training mode.
        self._in_training: weakref.WeakSet[Module] = weakref.WeakSet()
        self._counted: tuple[int, int] | None = None
        self._parameters: set[int] = set()
        self._is_compiling = _is_compiling(torch)
        #: Whether a transform of torch.func (grad, vmap) runs, in which a call has no backward pass.
        self._is_transforming = _is_transforming(torch)
        #: Why a call that might have been cut was made whole; "": none was.
        self.transformed = ""
        self._original: Call = torch.nn.Module.__call__
        self.take: Callable[[Module, Args, Kwargs], Any] | None = None
        self.auxiliary: Callable[[Module, Args, Kwargs], Any] | None = None
        self.before: Callable[[Module, Args, Kwargs], tuple[Args, Kwargs, ContextManager[Any]] | None] | None = None
        #: The training has begun, though its optimizer may be made only after the first backward pass.
        self.early = False
        self._running = 0
        self._installed = False
        #: True in the backward pass of a micro-batch: checkpoints call modules in it, on a GPU from another thread.
        self.in_backward = False
        #: The thread in which a micro-batch runs; None: no micro-batch runs.
        self._inside: int | None = None

    def install(self) -> None:
        """Only the first call does anything."""
        if self._installed:
            return
        self._installed = True
        outer = self
        kind = self._torch.nn.Module
        original = self._original = kind.__call__
        is_compiling, thread = self._is_compiling, threading.get_ident

        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            # The common case, modules inside of a micro-batch, comes early: hundreds of calls per step. is_compiling() is
            # asked before the thread, which compiled code cannot ask for.
            before = outer.before
            if (outer.take is None and before is None) or is_compiling() or outer._inside == thread():
                return original(self, *args, **kwargs)
            if before is not None and outer.outermost(self):
                replaced = before(self, args, kwargs)
                if replaced is not None:
                    with replaced[2]:
                        return outer._go_on(self, replaced[0], replaced[1])
            if outer._transforms():
                return original(self, *args, **kwargs)
            take = outer.take  # `before` may have set it
            if take is not None and outer._cuts(self):
                return take(self, args, kwargs)
            if outer.auxiliary is None or not outer.outermost(self) or not is_model(self):
                return original(self, *args, **kwargs)
            # (a trained model that is evaluated may have parts that are not trained)
            whole = outer.stepped(self) and (outer._torch.is_grad_enabled() or not _for_a_step())
            return (outer.whole if whole else outer.auxiliary)(self, args, kwargs)

        kind.__call__ = __call__

    def around(self, module: Module, step: Call, args: Args, kwargs: Kwargs) -> Any:
        """Makes a call of a method of the module. If `before` has changed it, it sees none of the calls inside, which may be cut."""
        before = self.before
        replaced = None if before is None or not self.outermost(module) else before(module, args, kwargs)
        if replaced is None:
            return step(*args, **kwargs)
        self.before = None
        try:
            with replaced[2]:
                return step(*replaced[0], **replaced[1])
        finally:
            self.before = before

    def _go_on(self, module: Module, args: Args, kwargs: Kwargs) -> Any:
        """Makes the call that `before` has changed: cut, or whole."""
        if self.take is not None and not self._transforms() and self._cuts(module):
            return self.take(module, args, kwargs)
        return self.uncut(module, args, kwargs)

    def _transforms(self) -> bool:
        """Whether a call has something besides its values and a backward pass now, of which micro-batches would know nothing."""
        if self._is_transforming():
            self.transformed = TRANSFORMED
            return True
        if self._torch.autograd.forward_ad._current_level >= 0:
            self.transformed = FORWARD_MODE
            return True
        return False

    def outermost(self, module: Module) -> bool:
        """Whether the call is inside no other module's call."""
        return not getattr(self._local, "depth", 0) and not self.in_backward and type(module).__name__ not in PASSED

    def begins(self, module: Module) -> bool:
        """Whether this is an outermost call, with gradients, of a module that an optimizer steps, in the mode that it is trained in."""
        if not self._torch.is_grad_enabled() or not self.outermost(module) or not self.stepped(module):
            return False
        if module.training:
            self._in_training.add(module)
        # One that was never called so in training mode is trained in evaluation mode (its batch normalisation is frozen). Else its evaluation
        # only does without no_grad().
        return module.training or module not in self._in_training

    def _cuts(self, module: Module) -> bool:
        """Whether the call is to be cut: one that begins, or one in evaluation mode that a step is to follow (gradients of the inputs,
        or a mode that was left so)."""
        if self.begins(module):
            return True
        return self._torch.is_grad_enabled() and self.outermost(module) and self.stepped(module) and _for_a_step()

    def stepped(self, module: Module) -> bool:
        """Whether an optimizer steps the module, or a part of it. Not while it is frozen, unless it has learned before."""
        if not self._optimizers.exist():
            return self.early and module.training and learns(module)
        if self.held(module) and not self._known[id(module)][2]:
            learned = any(each.requires_grad and id(each) in self._parameters for each in module.parameters())
            self._known[id(module)] = weakref.ref(module), True, learned
        return self._known[id(module)][2]

    def held(self, module: Module) -> bool:
        """Whether an optimizer has weights of the module, frozen ones, too."""
        held = sum(len(group["params"]) for optimizer in self._optimizers.known() for group in optimizer.param_groups)
        counted = (self._optimizers.made, held)
        if counted != self._counted:
            self._counted = counted
            self._known = {}
            self._parameters = {id(parameter) for parameter in self._optimizers.parameters()}
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            has = any(id(each) in self._parameters for each in module.parameters())
            known = self._known[id(module)] = (weakref.ref(module), has, False)
        return known[1]

    def uncut(self, module: Module, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Makes the call whole, as a micro-batch."""
        self._running += 1
        try:
            return self.whole(module, args, kwargs)
        finally:
            self._running -= 1

    def whole(self, module: Module, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Makes the call whole: none inside is outermost."""
        before, self._inside = self._inside, threading.get_ident()
        try:
            with self.inner():
                return self._original(module, *args, **kwargs)
        finally:
            self._inside = before

    def through(self, module: Module, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Makes the call as if the module were not there: calls inside are outermost."""
        return self._original(module, *args, **kwargs)

    @property
    def in_micro_batch(self) -> bool:
        """Whether a micro-batch runs, in the forward pass or recomputed in the backward pass."""
        return self._running > 0

    @contextlib.contextmanager
    def inner(self) -> Generator[None, None, None]:
        """In this thread no call inside counts as outermost."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    @contextlib.contextmanager
    def backward_of_micro_batch(self) -> Generator[None, None, None]:
        before, self.in_backward = self.in_backward, True
        try:
            yield
        finally:
            self.in_backward = before


def _for_a_step() -> bool:
    """Whether the script goes on to a backward pass from where it is."""
    return before_step(running_places(sys._getframe(1))) is True


def _is_compiling(torch: Torch) -> Callable[[], bool]:
    known = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return known if known is not None else lambda: False


def _is_transforming(torch: Torch) -> Callable[[], Any]:
    functorch: Any = torch._C._functorch
    return getattr(functorch, "peek_interpreter_stack", None) or functorch.are_transforms_active
