"""The outermost training calls of models: where the cut stands."""

import functools
import threading
import weakref

#: Modules that only pass a call on, and bring gradients together between ranks: the cut is inside of them, so that they
#: see one call and one backward pass.
PASSED = ("DistributedDataParallel", "DeepSpeedEngine")


class Calls:
    """Patches nn.Module.__call__; `take(module, args, kwargs)` runs in place of a call to be cut. `before(module, args, kwargs)`
    is asked first at an outermost call, of any module: what to call it with, and in what context; None: it has no say in it."""

    def __init__(self, torch, optimizers):
        self._torch = torch
        self._optimizers = optimizers
        self._local = threading.local()
        self._roots = {}
        self._counted = None
        self._compiling = _compiling(torch)
        self.original = None
        self.take = self.before = None
        #: Parts of calls that run now, one inside of the other.
        self.passing = 0
        #: The backward pass of a part runs: checkpoints call modules in it, on a GPU from another thread.
        self.unwinding = False
        #: The thread in which a part runs; None: none does.
        self._inside = None

    def install(self):
        torch, outer = self._torch, self
        kind = torch.nn.Module
        original = self.original = kind.__call__
        compiling, thread = self._compiling, threading.get_ident

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            # Early what holds for all modules inside of a part: hundreds of them, several times a step. Before it what is
            # compiled knows that it is, as it cannot ask for the thread.
            if (outer.take is None and outer.before is None) or compiling() or outer._inside == thread():
                return original(self, *args, **kwargs)
            if outer.before is not None and outer.outermost(self):
                made = outer.before(self, args, kwargs)
                if made is not None:
                    args, kwargs, around = made
                    with around:
                        return outer.go_on(self, args, kwargs)
            if outer.take is None or not self.training or not outer.begins(self):
                return original(self, *args, **kwargs)
            return outer.take(self, args, kwargs)

        kind.__call__ = __call__

    def go_on(self, module, args, kwargs):
        """The call that `before` was asked of: cut, or whole."""
        if self.take is not None and module.training and self.begins(module):
            return self.take(module, args, kwargs)
        return self.past(module, args, kwargs)

    def outermost(self, module):
        """Whether no other module's call is around this one."""
        return not getattr(self._local, "depth", 0) and not self.unwinding and type(module).__name__ not in PASSED

    def begins(self, module):
        """Whether this is an outermost call, in training, of a module that an optimizer steps."""
        return self._torch.is_grad_enabled() and self.outermost(module) and self.stepped(module)

    def stepped(self, module):
        """Whether an optimizer steps the module, or a part of it."""
        held = sum(len(group["params"]) for optimizer in self._optimizers.known() for group in optimizer.param_groups)
        counted = (self._optimizers.made, held)
        if counted != self._counted:
            self._counted = counted
            self._roots = {}
            self._ours = {id(parameter) for parameter in self._optimizers.parameters()}
        key = id(module)
        known = self._roots.get(key)
        if known is None or known[0]() is not module:
            ours = any(parameter.requires_grad and id(parameter) in self._ours for parameter in module.parameters())
            known = self._roots[key] = (weakref.ref(module), ours)
        return known[1]

    def past(self, module, args, kwargs):
        """The call itself."""
        before, self._inside = self._inside, threading.get_ident()
        self.enter()
        self.passing += 1
        try:
            return self.original(module, *args, **kwargs)
        finally:
            self.passing -= 1
            self.leave()
            self._inside = before

    def enter(self):
        """In this thread no call is an outermost one until leave()."""
        self._local.depth = getattr(self._local, "depth", 0) + 1

    def leave(self):
        self._local.depth -= 1


def _compiling(torch):
    compiler = getattr(torch, "compiler", None)
    known = getattr(compiler, "is_compiling", None)
    return known if known is not None else lambda: False
