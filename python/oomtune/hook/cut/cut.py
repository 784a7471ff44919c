"""The cut of one process: which calls are cut, into how many micro-batches, and what happens to calls that cannot be cut."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Mapping

from .autograd_node import AutogradNodes
from .batch_dims import candidates
from .composition import has_one_model, is_made_of_models
from .cut_call import CutCall
from .division import FEWER, Division
from .fsdp import is_sharded
from .known_plans import KnownPlans
from .model_calls import ModelCalls
from .plan import CutContext, Plan
from .pytree import tree_leaves
from .ranks import AllRanks, OneRank
from .reductions import Reductions
from .refusal import Mismatch, Uncuttable, Unreduced, Unseen, WritesWeights
from .sample_dim import sample_dim
from .training_step import divides, training_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Sequence

    from ..types import Call, LazyHeads, Leaves, Module, Torch, Tree
    from ..watch.optimizers import Optimizers
    from .batch_dims import BatchDims
    from .known_plans import Planned


#: Where the model's own calls can be cut.
INSTEAD = " (with --cut model it does not)"
#: Where what the loader yields in parts would be another training, too.
NOWHERE = " (nor would --cut loader train the same)"
#: Where nothing comes to a call by a backward pass, and gradients that the script sets take the place of those before.
TRANSFORMED = (
    "the model is called within torch.func (grad, vmap), where no call is cut, and gradients that are made there are not added up"
    + NOWHERE
)
#: How many batch sizes are remembered: loops and frameworks fetch some ahead.
REMEMBERED = 4


class Cut:
    """`refuse(reason)` is called if the script cannot be cut, and does not return; `warn(code, message)` if a result may differ.
    `plain()`: whether the current backward pass is a backward() of the script for all parameters."""

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
        self._context = CutContext(torch, self.calls, warn, plain, self._refuse_module)
        self._plans, self._auxiliary_plans = KnownPlans(torch), KnownPlans(torch)
        #: Models and losses around models that can be cut: their calls inside are.
        self._around: weakref.WeakSet[Module] = weakref.WeakSet()
        #: Why the first of them is not cut itself, as the beginning of a sentence, and NOWHERE, if it may compare the samples.
        self._outer = self._but = ""
        #: By id of each called module: (module, the ranks that decide how it is cut).
        self._ranks: dict[int, tuple[weakref.ref[Any], OneRank]] = {}
        #: Rows of the latest batches of the loop, the newest first.
        self._sizes: list[int] = []
        self._batch = 0
        self._division = Division(torch, self._context.warn)
        self._most_parts: int | None = None
        self._thread: int | None = None
        #: The number of calls that were cut, and of those that needed no cut as their samples were short.
        self.count = self._fitting = 0
        #: The kinds of the modules whose calls were cut, and whether any call had more samples than a micro-batch.
        self._kinds: set[str] = set()
        self._met = False

        #: Modules whose losses have been looked at, by id(); None: nothing is looked at.
        self._seen: set[int] | None = None
        self._looked = False

    def install(self, heads: LazyHeads | None = None) -> None:
        """`heads`: what may return logits that are not computed."""
        self._context.heads = heads
        self.calls.install()

    def engage(self, micro: int, batch: int, most_parts: int | None = None, tokens: int | None = None) -> None:
        """From now on cuts batches of `batch` samples into micro-batches of at most `micro`. `most_parts`: runs only this many
        per call, in place of all; for a process that only measures. `tokens`: see Division.begin()."""
        self._seen = None
        self._batch, self._most_parts, self.calls.transformed = batch, most_parts, False
        self._division.begin(micro, tokens)
        self._plans, self._auxiliary_plans = KnownPlans(self._torch), KnownPlans(self._torch)
        self._around = weakref.WeakSet()
        self._outer = self._but = ""
        self._context.warned.clear()
        self._sizes = [batch]
        self.count = self._fitting = 0
        self._kinds, self._met = set(), False
        self.calls.take, self.calls.auxiliary = self._take, self._take_auxiliary

    def look(self, rows: int) -> None:
        """For micro-batches of `rows` samples that others make, whose gradients a framework adds up: refuses if a module makes a loss
        that compares the samples of its batch with one another, as it would compare those of a micro-batch."""
        if not self._looked and not self.engaged and rows > 1 and not self._context.exchanges:
            self._sizes, self._seen = [rows], self._seen or set()
            self.calls.take = self._look

    def look_at_step(self, model: Module, step: Call, args: tuple[Any, ...], quiet: tuple[str, ...] = ()) -> None:
        """While look() is on, before a framework's step: refuses as that does if the step makes such a loss of the model's outputs.
        `quiet`: see training_step()."""
        if self._seen is None or id(model) in self._seen:
            return
        self._seen.add(id(model))
        if self._compares_samples(training_step(self._torch, model, step, quiet), args, {}):
            name = "%s.%s" % (
                type(getattr(step, "__self__", model)).__name__,
                getattr(step, "__name__", "training_step"),
            )
            self._refuse_comparing(name, INSTEAD)

    def look_at_division(self, model: Module, loss: Call, inputs: dict[str, Any], items: Any) -> None:
        """Refuses if `loss(model, inputs, num_items_in_batch)` is not divided by the number of the whole batch's items,
        `items`, as it is to be where a framework adds up what micro-batches make (None: it cannot be)."""
        if items is None or not divides(self._torch, self.calls, model, loss, inputs, items):
            self._refuse(
                "%s returns a loss that is not divided by the items of the whole batch, as the framework takes it to be%s"
                % (type(model).__name__, INSTEAD)
            )

    @property
    def looks(self) -> bool:
        """Whether look() is on."""
        return self._seen is not None

    def release(self) -> None:
        self.calls.take = self.calls.auxiliary = self._seen = None

    @property
    def longest(self) -> int:
        """Tokens of the longest sample that a call had, where tokens are counted; 0: no call told."""
        return self._division.longest

    @property
    def engaged(self) -> bool:
        return self.calls.take is not None and self._seen is None

    @property
    def in_micro_batch(self) -> bool:
        """Whether a micro-batch runs, in the forward pass or recomputed in the backward pass."""
        return self.calls.in_micro_batch

    @property
    def in_backward(self) -> bool:
        """Whether a micro-batch's backward pass runs."""
        return self.calls.in_backward

    def note_batch_rows(self, rows: int | None) -> None:
        """The loop gets a batch of `rows` samples."""
        if rows and rows not in self._sizes[:1]:
            self._sizes = ([rows] + [size for size in self._sizes if size != rows])[: REMEMBERED + 1]

    def stepped(self) -> None:
        """An optimizer has stepped: refuses if no call was cut before it, as the whole batch then was in memory."""
        if self._seen:
            # The first step has shown what there is to see.
            self._looked = True
            self.release()
        if self.engaged and self.count + self._fitting == 0 and max(self._sizes) > self._division.micro:
            missing = "no call of a model was seen whose inputs have a row for each of the batch's %d samples"
            self._refuse(TRANSFORMED if self.calls.transformed else missing % self._batch)

    def cut_calls(self) -> list[str] | None:
        """The kinds of the modules whose calls were cut, for an answer that nothing fits; None: none had to be, or the first was still looked at."""
        whole = not self.engaged or max(self._sizes) <= self._division.micro
        return None if whole or (self._met and not self._kinds) else sorted(self._kinds)

    def sample_dim(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Sequence[int]
    ) -> int | None:
        """Along which dimension of its first tensor a call can be cut, if it has one of the `counts` of samples; None: along none."""
        return sample_dim(self._torch, module, {**dict(enumerate(args)), **kwargs}, counts, self._context)

    # -- a call

    def _take(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **self._without_cache(module, kwargs)}
        leaves = tree_leaves(self._torch, tree, tuple(self._sizes))
        ranks = self._ranks_of(module)
        padding = self._division.padding(module, tree, leaves)
        planned = None if module in self._around else self._plan(module, tree, leaves, ranks)
        if planned is None:
            return self._not_itself(module, args, kwargs)
        plan, dims = planned
        try:
            shortened = None if padding is None else plan.shortened(padding, tree, leaves, dims)
            most = self._most(dims.count)
            parts = self._division.groups(dims.count, most, plan, padding, shortened is not None, ranks)
            if parts is None:
                self._fitting += 1
                return self.calls.uncut(module, args, kwargs)
            self._same_thread()
            reductions = Reductions(self._torch, leaves, dims)
            plan.accumulates_by_backward()
            plan.settle(tree, leaves, dims, reductions, parts)
            if not plan.was_cut:
                plan.tell_kept(tree, leaves, dims)
            call = CutCall(
                self._torch, plan, tree, leaves, dims, reductions, parts, self._most_parts, padding, shortened or {}
            )
            self.count += 1
            self._kinds.add(type(module).__name__)
            return self._nodes.output(call)
        except Unreduced as reason:
            # By settle(): nothing of this call has run.
            if plan.was_cut or ranks.together:
                self._refuse_module(module, reason)
            if self.count == 0 and is_made_of_models(module):
                self._go_around(module, reason)
            else:
                self._go_whole(module, leaves, reason)
        except Uncuttable as reason:
            self._refuse_module(module, reason)
        return self._not_itself(module, args, kwargs)

    def _not_itself(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        return (self._in_parts if module in self._around else self.calls.uncut)(module, args, kwargs)

    def _in_parts(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        """Makes a call whose parts are cut. Refuses if none is."""
        try:
            output = self.calls.through(module, args, kwargs)
        except Exception as error:
            from ..report.exceptions import is_oom

            if is_oom(error) and self.count + self._fitting == 0:
                self._refuse("%s; and no part of it was before memory ran out%s" % (self._outer, self._but))
            raise
        if self.count + self._fitting == 0:
            why = "no part of it is called with a row for each of the batch's samples"
            self._refuse("%s; and %s%s" % (self._outer, why, self._but))
        return output

    def _take_auxiliary(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        """A model that no optimizer steps (a teacher, a target, one whose features make the loss) is cut if that changes nothing at all,
        and runs whole if not. One that is only frozen now, and that gradients go through, is then cut as it is while it learns."""
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        ranks = self._ranks_of(module)
        leaves = tree_leaves(self._torch, tree, tuple(self._sizes))
        tried = [dims for dims in candidates(self._torch, leaves, self._sizes) if dims.count > self._most(dims.count)]
        alone = self._thread in (None, threading.get_ident()) and not ranks.together
        if tried and alone and _is_plain(self._torch, tree):
            key = self._auxiliary_plans.key(module, leaves)
            known, planned = self._auxiliary_plans.find(key, module, leaves, tried)
            try:
                if not known:
                    planned = self._auxiliary_plan(module, tree, leaves, tried)
                    self._auxiliary_plans.note(key, module, leaves, planned)
                if planned is not None:
                    plan, dims = planned
                    parts = self._division.groups(dims.count, self._most(dims.count), plan, None, False, ranks)
                    assert parts is not None
                    reductions = Reductions(self._torch, leaves, dims)
                    plan.settle(tree, leaves, dims, reductions, parts)
                    call = CutCall(self._torch, plan, tree, leaves, dims, reductions, parts, self._most_parts, None, {})
                    return self._nodes.output(call)
            except WritesWeights as reason:
                self._refuse_module(module, reason)
            except Uncuttable:
                self._auxiliary_plans.note(key, module, leaves, None)
        through = self._torch.is_grad_enabled() and any(getattr(leaf, "requires_grad", False) for leaf in leaves)
        if through and module.training and self.calls.take is not None and self.calls.held(module):
            return self._take(module, args, kwargs)
        return self.calls.whole(module, args, kwargs)

    def _auxiliary_plan(self, module: Module, tree: Tree, leaves: Leaves, tried: list[BatchDims]) -> Planned:
        plan = self._new_plan(module, leaves, OneRank())
        for dims in tried:
            try:
                plan.check_untouched(tree, leaves, dims)
                plan.check(tree, leaves, dims)
            except Mismatch:
                continue
            return plan, dims
        return None

    def _look(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        if self._seen is not None and id(module) not in self._seen and self._compares_samples(module, args, kwargs):
            self._refuse_comparing(type(module).__name__, INSTEAD if has_one_model(module) else NOWHERE)
        return self.calls.uncut(module, args, kwargs)

    def _refuse_comparing(self, name: str, but: str) -> NoReturn:
        self._refuse(
            "%s computes a loss that compares the samples of its batch, and would compare those of a micro-batch%s"
            % (name, but)
        )

    def _compares_samples(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **self._without_cache(module, kwargs)}
        leaves = tree_leaves(self._torch, tree, tuple(self._sizes))
        compares = self._loss_compares(module, tree, leaves)
        if compares is not None and self._seen is not None:
            self._seen.add(id(module))
        return compares is True

    def _loss_compares(self, module: Module, tree: Tree, leaves: Leaves) -> bool | None:
        """Whether the module makes a loss that compares the samples; None: nothing can be seen, so that the framework's own way holds."""
        for dims in candidates(self._torch, leaves, self._sizes):
            if dims.count < 2:
                continue
            try:
                return self._new_plan(module, leaves, OneRank()).compares_samples(tree, leaves, dims)
            except Uncuttable:
                continue
        return None

    def _new_plan(self, module: Module, leaves: Leaves, ranks: OneRank) -> Plan:
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        return Plan(self._torch, module, self._context, tuple(self._sizes), tensors, ranks)

    def _refuse_module(self, module: Module, reason: Uncuttable | str | None) -> NoReturn:
        name = type(module).__name__
        why = (
            "%s; nor can %s: %s" % (self._outer, name, reason)
            if self._outer
            else "%s cannot be cut: %s" % (name, reason)
        )
        self._refuse(why + (self._but if getattr(reason, "elsewhere", True) else NOWHERE))

    def _most(self, count: int) -> int:
        """The most rows of a micro-batch; proportionally more in a call with several views of each sample."""
        views = 1
        if count not in self._sizes:
            views = next((count // size for size in self._sizes if count % size == 0), 1)
        return self._division.micro * views

    def _ranks_of(self, module: Module) -> OneRank:
        """The ranks that decide how the module is cut: this one, or all that its weights are sharded between."""
        known = self._ranks.get(id(module))
        if known is None or known[0]() is not module:
            ranks = AllRanks(self._torch) if is_sharded(module.modules()) else OneRank()
            known = self._ranks[id(module)] = (weakref.ref(module), ranks)
        return known[1]

    def _plan(self, module: Module, tree: Tree, leaves: Leaves, ranks: OneRank) -> Planned:
        """None: the call runs whole, as none of its inputs has a row for each sample."""
        tried = list(candidates(self._torch, leaves, self._sizes))
        if not ranks.any(any(dims.count > self._most(dims.count) for dims in tried)):
            return None
        self._met = True
        if ranks.any(not tried):
            self._refuse_module(module, FEWER)
        key = self._plans.key(module, leaves)
        known, planned = self._plans.find(key, module, leaves, tried)
        if ranks.any(not known):
            return self._check(key, module, tree, leaves, tried, ranks)
        return planned

    def _check(
        self,
        key: Any,
        module: Module,
        tree: Tree,
        leaves: Leaves,
        tried: list[BatchDims],
        ranks: OneRank,
    ) -> Planned:
        reason: Uncuttable | None = None
        try:
            plan = self._new_plan(module, leaves, ranks)
            for dims in tried[: ranks.min(len(tried))]:
                try:
                    ranks.agreed(functools.partial(plan.check, tree, leaves, dims))
                except Mismatch as mismatch:
                    reason = reason or mismatch
                    continue
                self._plans.note(key, module, leaves, (plan, dims))
                return plan, dims
        except Uncuttable as found:
            # Of the likeliest dimensions, if several were tried.
            reason = reason or found
        alone = self.count == 0 and not ranks.together and not isinstance(reason, WritesWeights)
        if (
            alone
            and is_made_of_models(module)
            and (isinstance(reason, Mismatch) or self._loss_compares(module, tree, leaves))
        ):
            self._go_around(module, reason)
        else:
            self._go_whole(module, leaves, reason)
        return None

    def _go_around(self, module: Module, reason: Uncuttable | None) -> None:
        """What the module makes of the outputs of models in it needs the whole batch, and has it: only the models' own calls are cut."""
        self._around.add(module)
        if not self._outer:
            self._outer = "%s cannot be cut: %s" % (type(module).__name__, reason)
            self._but = "" if isinstance(reason, Unseen) else NOWHERE

    def _go_whole(self, module: Module, leaves: Leaves, reason: Uncuttable | None) -> None:
        """Where another model's call is cut, the module's (a loss with weights of its own) gives the same if it runs whole. Refuses if none is."""
        if self.count == 0 or isinstance(reason, WritesWeights):
            self._refuse_module(module, reason)
        self._plans.note(self._plans.key(module, leaves), module, leaves, None)
        self._warn("uncut", "%s is run on the whole batch: %s." % (type(module).__name__, reason))

    def _without_cache(self, module: Module, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Turns off the cache of keys and values, which transformers' models keep for generation."""
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


def _is_plain(torch: Torch, tree: dict[int | str, Any]) -> bool:
    """Whether nothing in it can be written to by the call, as the cache of a model that generates is."""
    kinds = (torch.Tensor, str, bool, int, float, type(None), list, tuple, Mapping)
    return not tree.get("use_cache") and all(isinstance(value, kinds) for value in tree.values())


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
