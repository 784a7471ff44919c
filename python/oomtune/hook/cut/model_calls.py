"""The outermost training calls of models: where the cut stands."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Dict, Generator, Iterable, Mapping, Tuple

    from ..types import Call, Module, Torch
    from ..watch.optimizers import Optimizers

    Args = Tuple[Any, ...]
    Kwargs = Dict[str, Any]

#: Modules that only pass a call on, and bring gradients together between ranks: the cut is inside of them, so that they
#: see one call and one backward pass.
PASSED = ("DistributedDataParallel", "DeepSpeedEngine")


class ModelCalls:
    """Patches nn.Module.__call__; `take(module, args, kwargs)` runs in place of a call to be cut. `before(module, args, kwargs)`
    is asked first at an outermost call, of any module: what to call it with, and in what context; None: it has no say in it."""

    def __init__(self, torch: Torch, optimizers: Optimizers) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._local = threading.local()
        #: For each module called, by id: (it, whether an optimizer steps weights of it).
        self._known: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self._counted: tuple[int, int] | None = None
        self._parameters: set[int] = set()
        self._is_compiling = _is_compiling(torch)
        self._original: Call = torch.nn.Module.__call__
        self.take: Callable[[Module, Args, Kwargs], Any] | None = None
        self.before: Callable[[Module, Args, Kwargs], tuple[Args, Kwargs, ContextManager[Any]] | None] | None = None
        self._running = 0
        #: The backward pass of a micro-batch runs: checkpoints call modules in it, on a GPU from another thread.
        self.in_backward = False
        #: The thread in which a micro-batch runs; None: none does.
        self._inside: int | None = None

    def install(self) -> None:
        outer = self
        kind = self._torch.nn.Module
        original = self._original = kind.__call__
        is_compiling, thread = self._is_compiling, threading.get_ident

        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Early what holds for all modules inside of a micro-batch: hundreds of them, several times a step. Before it what
            # is compiled knows that it is, as it cannot ask for the thread.
            before = outer.before
            if (outer.take is None and before is None) or is_compiling() or outer._inside == thread():
                return original(self, *args, **kwargs)
            if before is not None and outer.outermost(self):
                replaced = before(self, args, kwargs)
                if replaced is not None:
                    with replaced[2]:
                        return outer._go_on(self, replaced[0], replaced[1])
            take = outer.take  # which `before` may have set
            if take is None or not self.training or not outer.begins(self):
                return original(self, *args, **kwargs)
            return take(self, args, kwargs)

        kind.__call__ = __call__

    def _go_on(self, module: Module, args: Args, kwargs: Kwargs) -> Any:
        """The call that `before` was asked of: cut, or whole."""
        if self.take is not None and module.training and self.begins(module):
            return self.take(module, args, kwargs)
        return self.uncut(module, args, kwargs)

    def outermost(self, module: Module) -> bool:
        """Whether no other module's call is around this one."""
        return not getattr(self._local, "depth", 0) and not self.in_backward and type(module).__name__ not in PASSED

    def begins(self, module: Module) -> bool:
        """Whether this is an outermost call, in training, of a module that an optimizer steps."""
        return self._torch.is_grad_enabled() and self.outermost(module) and self.stepped(module)

    def stepped(self, module: Module) -> bool:
        """Whether an optimizer steps the module, or a part of it."""
        held = sum(len(group["params"]) for optimizer in self._optimizers.known() for group in optimizer.param_groups)
        counted = (self._optimizers.made, held)
        if counted != self._counted:
            self._counted = counted
            self._known = {}
            self._parameters = {id(parameter) for parameter in self._optimizers.parameters()}
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            stepped = any(each.requires_grad and id(each) in self._parameters for each in module.parameters())
            known = self._known[id(module)] = (weakref.ref(module), stepped)
        return known[1]

    def uncut(self, module: Module, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """The call itself."""
        before, self._inside = self._inside, threading.get_ident()
        self._running += 1
        try:
            with self.inner():
                return self._original(module, *args, **kwargs)
        finally:
            self._running -= 1
            self._inside = before

    @property
    def in_micro_batch(self) -> bool:
        """A micro-batch of a call runs, in the forward pass or again in the backward pass."""
        return self._running > 0

    @contextlib.contextmanager
    def inner(self) -> Generator[None, None, None]:
        """In this thread no call inside is an outermost one."""
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


def _is_compiling(torch: Torch) -> Callable[[], bool]:
    known = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return known if known is not None else lambda: False
