"""The cut of one process: which calls are cut, into how many parts, and what is done where they cannot be."""

import contextlib
import functools
import os
import threading
import weakref

from .calls import Calls
from .layout import bounds, layouts
from .node import function
from .passes import Call
from .plan import Plan
from .ranks import Alone, Together
from .refusal import Mismatch, Uncuttable
from .shards import sharded
from .tree import Rows, leaves as leaves_of
from .weights import Rules

#: Batches whose sizes are remembered: loops and frameworks fetch some ahead.
REMEMBERED = 4

FEWER = "a rank has fewer samples in its batch than another has micro-batches"

DIFFERENCES = {
    "buffers": "The model keeps values of its own (buffers) that its forward pass takes from the samples: they are those of micro-batches.",
    "fp16": "In fp16 the gradients of a micro-batch overflow later than those of the whole batch: the loss scaler may skip fewer steps.",
}


class Cut:
    """`refuse(reason)` is told why the script cannot be cut and does not return; `warn(code, message)` what differs;
    `plain()` says whether the backward pass that runs is a backward() of the script for all that learns."""

    def __init__(self, torch, optimizers, refuse, warn, plain=lambda: False):
        self._torch = torch
        self._refuse = refuse
        self._warn = warn
        self.plain = plain
        #: Several ranks bring their gradients together.
        self.exchanges = int(os.environ.get("WORLD_SIZE") or 1) > 1
        #: torch's own, before anything watches it.
        self.original_backward = torch.autograd.backward
        self.calls = Calls(torch, optimizers)
        self._function = None
        self._plans = {}
        #: For each module called, by id: (it, what decides how it is cut).
        self._ranks = {}
        self._sizes = []
        self._micro = self._batch = self._most_parts = None
        self._thread = None
        #: Calls that were cut; None: none yet, and none has to be.
        self.count = 0
        #: The call that may keep activations.
        self._latest = lambda: None
        #: Codes of the differences that were warned of.
        self._warned = set()

    def install(self):
        self.calls.install()

    def engage(self, micro, batch, most_parts=None):
        """From now on: batches of `batch` samples, in micro-batches of at most `micro`. `most_parts`: of each call so many
        are run, and stand for the others too; for a process that only measures."""
        self._micro, self._batch, self._most_parts = micro, batch, most_parts
        self._plans = {}
        self._warned = set()
        self._sizes = [batch]
        self.count = 0
        self.calls.take = self._take

    def release(self):
        self.calls.take = None

    @property
    def engaged(self):
        return self.calls.take is not None

    def saw(self, rows):
        """The loop was handed a batch of so many samples."""
        if rows and rows not in self._sizes[:1]:
            self._sizes = ([rows] + [size for size in self._sizes if size != rows])[: REMEMBERED + 1]

    def stepped(self):
        """An optimizer has stepped: by now a call must have been cut, or the memory is that of the whole batch."""
        if self.engaged and self.count == 0 and max(self._sizes) > self._micro:
            self._refuse("no call of a model was seen whose inputs have a row for each of the batch's %d samples" % self._batch)

    # -- what Plan asks

    @property
    def passing(self):
        """A part of a call runs, in the forward pass or again in the backward pass."""
        return self.calls.passing > 0

    @property
    def unwinding(self):
        """A part's backward pass runs."""
        return self.calls.unwinding

    @contextlib.contextmanager
    def part_unwinds(self):
        calls = self.calls
        before, calls.unwinding = calls.unwinding, True
        try:
            yield
        finally:
            calls.unwinding = before

    def past(self, module, args, kwargs):
        return self.calls.past(module, args, kwargs)

    def enter(self):
        self.calls.enter()

    def leave(self):
        self.calls.leave()

    def warn(self, code):
        if code not in self._warned:
            self._warned.add(code)
            self._warn(code, DIFFERENCES[code])

    # -- a call

    def _take(self, module, args, kwargs):
        tree = {**dict(enumerate(args)), **self._without_cache(module, kwargs)}
        lengths = tuple(self._sizes)
        leaves = leaves_of(self._torch, tree, lengths)
        ranks = self._ranks_of(module)
        plan, layout = self._plan(module, tree, leaves, lengths, ranks)
        if plan is None:
            return self.past(module, args, kwargs)
        most = self._most(layout.count)
        number = ranks.most(-(-layout.count // most))
        if number < 2:
            return self.past(module, args, kwargs)
        self._same_thread()
        rules = Rules(self._torch, leaves, layout)
        try:
            if ranks.any(layout.count < number):
                raise Uncuttable(FEWER)
            parts = bounds(layout.count, most, plan.even, number)
            plan.gathers()
            plan.settle(tree, leaves, layout, rules, parts)
            return self._cut(Call(self._torch, plan, tree, leaves, layout, rules, parts, self._most_parts))
        except Uncuttable as reason:
            self._refuse("%s cannot be cut: %s" % (type(module).__name__, reason))

    def _cut(self, call):
        torch = self._torch
        self.count += 1
        plan = call.plan
        if not any(plan.flags):
            with torch.no_grad():
                return call.built(call.forward())
        if self._function is None:
            self._function = function(torch)
        before, self._latest = self._latest(), weakref.ref(call)
        if before is not None:
            before.let_go()  # one part's activations at a time, however often a step calls models
        holder = []
        made = self._function.apply(call, plan.flags, holder, *call.inputs, *plan.parameters)
        joined, made = holder.pop(), iter(made)
        leaves = [next(made) if isinstance(leaf, torch.Tensor) else leaf for leaf in joined]
        return call.built(leaves)

    def _most(self, count):
        """Rows of a part. A call of several views of each sample has as many times more of them."""
        views = 1
        if count not in self._sizes:
            views = next((count // size for size in self._sizes if count % size == 0), 1)
        return self._micro * views

    def _ranks_of(self, module):
        """Who decides how the module is cut: this rank, or all of those that it is sharded between."""
        known = self._ranks.get(id(module))
        if known is None or known[0]() is not module:
            ranks = Together(self._torch) if sharded(module.modules()) else Alone()
            known = self._ranks[id(module)] = (weakref.ref(module), ranks)
        return known[1]

    def _plan(self, module, tree, leaves, lengths, ranks):
        """(plan, layout); (None, None): the call is run whole, since nothing in it counts samples."""
        candidates = list(layouts(self._torch, leaves, self._sizes))
        if not ranks.any(any(layout.count > self._most(layout.count) for layout in candidates)):
            return None, None
        if ranks.any(not candidates):
            self._refuse("%s cannot be cut: %s" % (type(module).__name__, FEWER))
        key = (id(module), module.training, _signature(self._torch, leaves))
        known = self._known(key, module, candidates)
        if ranks.any(known is None):
            return self._rehearse(key, module, tree, leaves, lengths, candidates, ranks)
        return known

    def _known(self, key, module, candidates):
        """(plan, layout), as at an earlier call; None: there was none like it."""
        known = self._plans.get(key)
        if known is None or known[0]() is not module:
            return None
        plan, dims = known[1:]
        if plan is None:
            return None, None
        # Cut along the same dimensions, however many rows it has now: another that is as long as a batch is chance.
        layout = next((layout for layout in candidates if layout.dims == dims), None)
        return None if layout is None else (plan, layout)

    def _rehearse(self, key, module, tree, leaves, lengths, candidates, ranks):
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        reason = None
        try:
            plan = Plan(self._torch, module, self, lengths, tensors, ranks)
            for layout in candidates[: ranks.least(len(candidates))]:
                try:
                    ranks.agreed(functools.partial(plan.rehearse, tree, leaves, layout))
                except Mismatch as mismatch:
                    reason = reason or mismatch
                    continue
                self._plans[key] = (weakref.ref(module), plan, layout.dims)
                return plan, layout
        except Uncuttable as found:
            reason = found
        if self.count == 0:
            self._refuse("%s cannot be cut: %s" % (type(module).__name__, reason))
        # Another model's call is cut: this one (a loss with weights of its own) gives the same if it is not.
        self._plans[key] = (weakref.ref(module), None, None)
        self._warn("uncut", "%s is run on the whole batch: %s." % (type(module).__name__, reason))
        return None, None

    def _without_cache(self, module, kwargs):
        """transformers' models keep keys and values for generation unless they are told not to: nobody generates here."""
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True and "use_cache" not in kwargs and _takes(module, "use_cache"):
            return dict(kwargs, use_cache=False)
        return kwargs

    def _same_thread(self):
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        elif self._thread != thread:
            self._refuse("several threads train")


def _signature(torch, leaves):
    """What tells one kind of inputs from another; sizes do not."""
    return tuple(
        (leaf.dim(), leaf.dtype, leaf.requires_grad) if isinstance(leaf, torch.Tensor) else _kind(leaf) for leaf in leaves
    )


def _kind(leaf):
    return leaf if isinstance(leaf, (str, bool, int, type(None))) else type(leaf) if not isinstance(leaf, Rows) else Rows


@functools.lru_cache(maxsize=64)
def _parameters(kind):
    import inspect

    try:
        return frozenset(inspect.signature(kind.forward).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _takes(module, name):
    return name in _parameters(type(module))
