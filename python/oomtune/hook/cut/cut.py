"""The cut of one process: which calls are cut, into how many micro-batches, and what is done where they cannot be."""

from __future__ import annotations

import functools
import threading
import weakref

from .autograd_node import AutogradNodes
from .batch_dims import candidates, split
from .cut_call import CutCall
from .fsdp import is_sharded
from .model_calls import ModelCalls
from .plan import Plan, Training
from .pytree import tree_leaves
from .ranks import AllRanks, OneRank
from .reductions import Reductions
from .refusal import Mismatch, Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional, Tuple

    from ..types import Leaves, Module, Torch, Tree
    from ..watch.optimizers import Optimizers
    from .batch_dims import BatchDims, Dims

    #: How a call is cut; None: it is run whole.
    Planned = Optional[Tuple[Plan, BatchDims]]

#: Batches whose sizes are remembered: loops and frameworks fetch some ahead.
REMEMBERED = 4

FEWER = "a rank has fewer samples in its batch than another has micro-batches"


class Cut:
    """`refuse(reason)` is told why the script cannot be cut and does not return; `warn(code, message)` what differs;
    `plain()` says whether the backward pass that runs is a backward() of the script for all that learns."""

    def __init__(
        self,
        torch: Torch,
        optimizers: Optimizers,
        refuse: Callable[[str], NoReturn],
        warn: Callable[[str, str], None],
        plain: Callable[[], bool] = lambda: False,
    ) -> None:
        self._torch = torch
        self._refuse = refuse
        self._warn = warn
        self.calls = ModelCalls(torch, optimizers)
        self._nodes = AutogradNodes(torch)
        self._training = Training(torch, self.calls, warn, plain)
        #: For a module, by id, and a kind of its inputs: (it, how it is cut).
        self._plans: dict[Any, tuple[weakref.ref[Any], tuple[Plan, Dims] | None]] = {}
        #: For each module called, by id: (it, what decides how it is cut).
        self._ranks: dict[int, tuple[weakref.ref[Any], OneRank]] = {}
        #: Rows of the batches that the loop was handed lately, the latest first.
        self._sizes: list[int] = []
        self._micro = self._batch = 0
        self._most_parts: int | None = None
        self._thread: int | None = None
        #: Calls that were cut.
        self.count = 0

    def install(self) -> None:
        self.calls.install()

    def engage(self, micro: int, batch: int, most_parts: int | None = None) -> None:
        """From now on: batches of `batch` samples, in micro-batches of at most `micro`. `most_parts`: of each call so many
        are run, and stand for the others too; for a process that only measures."""
        self._micro, self._batch, self._most_parts = micro, batch, most_parts
        self._plans = {}
        self._training.warned.clear()
        self._sizes = [batch]
        self.count = 0
        self.calls.take = self._take

    def release(self) -> None:
        self.calls.take = None

    @property
    def engaged(self) -> bool:
        return self.calls.take is not None

    @property
    def in_micro_batch(self) -> bool:
        """A micro-batch of a call runs, in the forward pass or again in the backward pass."""
        return self.calls.in_micro_batch

    @property
    def in_backward(self) -> bool:
        """A micro-batch's backward pass runs."""
        return self.calls.in_backward

    def saw(self, rows: int | None) -> None:
        """The loop was handed a batch of so many samples."""
        if rows and rows not in self._sizes[:1]:
            self._sizes = ([rows] + [size for size in self._sizes if size != rows])[: REMEMBERED + 1]

    def stepped(self) -> None:
        """An optimizer has stepped: by now a call must have been cut, or the memory is that of the whole batch."""
        if self.engaged and self.count == 0 and max(self._sizes) > self._micro:
            self._refuse(
                "no call of a model was seen whose inputs have a row for each of the batch's %d samples" % self._batch
            )

    # -- a call

    def _take(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **self._without_cache(module, kwargs)}
        lengths = tuple(self._sizes)
        leaves = tree_leaves(self._torch, tree, lengths)
        ranks = self._ranks_of(module)
        planned = self._plan(module, tree, leaves, lengths, ranks)
        if planned is None:
            return self.calls.uncut(module, args, kwargs)
        plan, dims = planned
        most = self._most(dims.count)
        number = ranks.max(-(-dims.count // most))
        if number < 2:
            return self.calls.uncut(module, args, kwargs)
        self._same_thread()
        reductions = Reductions(self._torch, leaves, dims)
        try:
            if ranks.any(dims.count < number):
                raise Uncuttable(FEWER)
            parts = split(dims.count, most, plan.even, number)
            plan.accumulates_by_backward()
            plan.settle(tree, leaves, dims, reductions, parts)
            call = CutCall(self._torch, plan, tree, leaves, dims, reductions, parts, self._most_parts)
            self.count += 1
            return self._nodes.output(call)
        except Uncuttable as reason:
            self._refuse_module(module, reason)

    def _refuse_module(self, module: Module, reason: Uncuttable | str | None) -> NoReturn:
        self._refuse("%s cannot be cut: %s" % (type(module).__name__, reason))

    def _most(self, count: int) -> int:
        """Rows of a micro-batch. A call of several views of each sample has as many times more of them."""
        views = 1
        if count not in self._sizes:
            views = next((count // size for size in self._sizes if count % size == 0), 1)
        return self._micro * views

    def _ranks_of(self, module: Module) -> OneRank:
        """Who decides how the module is cut: this rank, or all of those that it is sharded between."""
        known = self._ranks.get(id(module))
        if known is None or known[0]() is not module:
            ranks = AllRanks(self._torch) if is_sharded(module.modules()) else OneRank()
            known = self._ranks[id(module)] = (weakref.ref(module), ranks)
        return known[1]

    def _plan(self, module: Module, tree: Tree, leaves: Leaves, lengths: tuple[int, ...], ranks: OneRank) -> Planned:
        """None: the call is run whole, since nothing in it counts samples."""
        tried = list(candidates(self._torch, leaves, self._sizes))
        if not ranks.any(any(dims.count > self._most(dims.count) for dims in tried)):
            return None
        if ranks.any(not tried):
            self._refuse_module(module, FEWER)
        key = (id(module), module.training, _signature(self._torch, leaves))
        known, planned = self._known(key, module, tried)
        if ranks.any(not known):
            return self._check(key, module, tree, leaves, lengths, tried, ranks)
        return planned

    def _known(self, key: Any, module: Module, tried: list[BatchDims]) -> tuple[bool, Planned]:
        """(whether there was a call like it, how that was cut)"""
        known = self._plans.get(key)
        if known is None or known[0]() is not module:
            return False, None
        if known[1] is None:
            return True, None
        plan, cut_dims = known[1]
        # Cut along the same dimensions, however many rows it has now: another that is as long as a batch is chance.
        dims = next((dims for dims in tried if dims.dims == cut_dims), None)
        return (False, None) if dims is None else (True, (plan, dims))

    def _check(
        self,
        key: Any,
        module: Module,
        tree: Tree,
        leaves: Leaves,
        lengths: tuple[int, ...],
        tried: list[BatchDims],
        ranks: OneRank,
    ) -> Planned:
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        reason: Uncuttable | None = None
        try:
            plan = Plan(self._torch, module, self._training, lengths, tensors, ranks)
            for dims in tried[: ranks.min(len(tried))]:
                try:
                    ranks.agreed(functools.partial(plan.check, tree, leaves, dims))
                except Mismatch as mismatch:
                    reason = reason or mismatch
                    continue
                self._plans[key] = (weakref.ref(module), (plan, dims.dims))
                return plan, dims
        except Uncuttable as found:
            reason = found
        if self.count == 0:
            self._refuse_module(module, reason)
        # Another model's call is cut: this one (a loss with weights of its own) gives the same if it is not.
        self._plans[key] = (weakref.ref(module), None)
        self._warn("uncut", "%s is run on the whole batch: %s." % (type(module).__name__, reason))
        return None

    def _without_cache(self, module: Module, kwargs: dict[str, Any]) -> dict[str, Any]:
        """transformers' models keep keys and values for generation unless they are told not to: nobody generates here."""
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True and "use_cache" not in kwargs and _takes(module, "use_cache"):
            return dict(kwargs, use_cache=False)
        return kwargs

    def _same_thread(self) -> None:
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        elif self._thread != thread:
            self._refuse("several threads train")


def _signature(torch: Torch, leaves: Leaves) -> tuple[Any, ...]:
    """What tells one kind of inputs from another; sizes do not."""
    return tuple(
        (leaf.dim(), leaf.dtype, leaf.requires_grad) if isinstance(leaf, torch.Tensor) else _kind(leaf)
        for leaf in leaves
    )


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, (str, bool, int, type(None))):
        return leaf
    kind: Any = type(leaf)  # pyright: ignore[reportUnknownVariableType]
    return kind


@functools.lru_cache(maxsize=64)
def _parameters(kind: Any) -> frozenset[str]:
    import inspect

    try:
        return frozenset(inspect.signature(kind.forward).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _takes(module: Module, name: str) -> bool:
    kind: Any = type(module)  # pyright: ignore[reportUnknownVariableType]
    return name in _parameters(kind)
