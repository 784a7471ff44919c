"""The cut of one process: which calls are cut, into how many micro-batches, and what happens to calls that cannot be cut."""

from __future__ import annotations

import functools
import threading
import weakref

from .autograd_node import AutogradNodes
from .auxiliary_calls import AuxiliaryCalls
from .batch_dims import candidates
from .call_looks import CallLooks
from .compared_samples import ComparedSamples
from .composition import is_made_of_models
from .cut_call import CutCall
from .cut_context import CutContext
from .division import FEWER, Division
from .key_value_cache import without_cache
from .known_plans import KnownPlans
from .model_calls import ModelCalls
from .plan import Plan
from .pytree import tree_leaves
from .reductions import Reductions
from .refusal import NOWHERE, Mismatch, NoMean, Uncuttable, Unreduced, Unseen, WritesWeights
from .sample_dim import sample_dim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Sequence

    from ..types import LazyHeads, Leaves, Module, Torch, Tree
    from ..watch.optimizers import Optimizers
    from .batch_dims import BatchDims
    from .known_plans import Planned
    from .ranks import OneRank


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
        self._division = Division(torch, self._context.warn)
        self._plans = KnownPlans(torch, self._context.settings)
        self._auxiliary = AuxiliaryCalls(torch, self._context, self._division, self._nodes.output)
        #: Losses in micro-batches that others make.
        self.compared = ComparedSamples(torch, self._context, refuse)
        #: Models and losses around models that can be cut: their calls inside are.
        self._around: weakref.WeakSet[Module] = weakref.WeakSet()
        #: Why the first of them is not cut itself, as the beginning of a sentence, and NOWHERE, if it may compare the samples.
        self._outer = self._but = ""
        self._batch = 0
        self._thread: int | None = None
        #: The number of calls that were cut, and of those that needed no cut as their samples were short.
        self.count = self._fitting = 0
        #: The kinds of the modules whose calls were cut, and whether any call had more samples than a micro-batch.
        self._kinds: set[str] = set()
        self._met = False

    def install(self, heads: LazyHeads | None = None) -> None:
        """`heads`: what may return logits that are not computed."""
        self._context.heads = heads
        self.calls.install()

    def engage(self, micro: int, batch: int, most_parts: int | None = None, tokens: int | None = None) -> None:
        """From now on cuts batches of `batch` samples into micro-batches of at most `micro`. `most_parts`: runs only this many
        per call, in place of all; for a process that only measures. `tokens`: see Division.begin()."""
        self.compared.end()
        self._batch, self._context.most_parts, self.calls.transformed = batch, most_parts, ""
        self._division.begin(micro, tokens)
        self._plans = KnownPlans(self._torch, self._context.settings)
        self._auxiliary.forget()
        self._around = weakref.WeakSet()
        self._outer = self._but = ""
        self._context.warned.clear()
        self._context.sizes = [batch]
        self.count = self._fitting = 0
        self._kinds, self._met = set(), False
        self.calls.take, self.calls.auxiliary = self._take, self._take_auxiliary

    def release(self) -> None:
        self.compared.end()
        self.calls.take = self.calls.auxiliary = None

    @property
    def longest(self) -> int:
        """Tokens of the longest sample that a call had, where tokens are counted; 0: no call told."""
        return self._division.longest

    @property
    def engaged(self) -> bool:
        return self.calls.take is not None and not self.compared.looks

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
        self._context.note_batch_rows(rows)

    def stepped(self) -> None:
        """An optimizer has stepped: refuses if no call was cut before it, as the whole batch then was in memory."""
        self.compared.stepped()
        if self.engaged and self.count + self._fitting == 0 and max(self._context.sizes) > self._division.micro:
            missing = "no call of a model was seen whose inputs have a row for each of the batch's %d samples"
            self._refuse(self.calls.transformed or missing % self._batch)

    def cut_calls(self) -> list[str] | None:
        """The kinds of the modules whose calls were cut, for an answer that nothing fits; None: none had to be, or the first was still looked at."""
        whole = not self.engaged or max(self._context.sizes) <= self._division.micro
        return None if whole or (self._met and not self._kinds) else sorted(self._kinds)

    def sample_dim(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Sequence[int]
    ) -> int | None:
        """Along which dimension of its first tensor a call can be cut, if it has one of the `counts` of samples; None: along none."""
        return sample_dim(self._torch, module, {**dict(enumerate(args)), **kwargs}, counts, self._context)

    # -- a call

    def _take(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **without_cache(module, kwargs)}
        leaves = tree_leaves(self._torch, tree, tuple(self._context.sizes))
        ranks = self._context.ranks.of(module)
        padding = self._division.padding(module, tree, leaves)
        planned = None if module in self._around else self._plan(module, tree, leaves, ranks)
        if planned is None:
            return self._not_itself(module, args, kwargs)
        plan, dims = planned
        try:
            looks = CallLooks(self._torch, plan, tree, leaves, dims)
            shortened = None if padding is None else looks.shortened(padding)
            most = self._most(dims)
            parts = self._division.groups(dims.count, most, plan, padding, shortened is not None, ranks)
            if parts is None:
                self._fitting += 1
                output = self.calls.uncut(module, args, kwargs)
                plan.settings.end()
                return output
            self._same_thread()
            reductions = Reductions(self._torch, leaves, dims)
            plan.accumulates_by_backward()
            looks.settle(reductions, parts)
            # By tokens a micro-batch may have many short samples: at their whole width there is no room for as many.
            if self._context.most_parts is None and padding is None:
                looks.look_again(parts[-1].rows)
            if not plan.was_cut:
                looks.tell_kept()
            self.count += 1
            self._kinds.add(type(module).__name__)
            most_parts = self._context.most_parts
            call = CutCall(self._torch, plan, tree, leaves, dims, reductions, parts, most_parts, padding, shortened)
            return self._nodes.output(call)
        except (Unreduced, Mismatch) as reason:
            # By settle() or the look at a micro-batch: nothing of this call has run.
            if plan.was_cut or ranks.together:
                self._refuse_module(module, reason)
            if self.count == 0 and is_made_of_models(module):
                self._go_around(module, reason)
            else:
                self._go_whole(module, leaves, reason)
        except Uncuttable as reason:
            self._refuse_module(module, reason)
        return self._not_itself(module, args, kwargs)

    def _most(self, dims: BatchDims) -> int:
        return self._division.most(dims.count, self._context.sizes)

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
        """A model that no optimizer steps (a teacher, a target, one whose features make the loss), or that makes its own targets, is cut if
        that changes nothing at all, and runs whole if not. One that is only frozen now, and that gradients go through, is then cut as it is while it learns."""
        tree: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        leaves = tree_leaves(self._torch, tree, tuple(self._context.sizes))
        if self._thread in (None, threading.get_ident()) and not self._context.ranks.of(module).together:
            done = self._auxiliary.cut(module, tree, leaves)
            if done is not None:
                return done[0]
        through = self._torch.is_grad_enabled() and any(getattr(leaf, "requires_grad", False) for leaf in leaves)
        if through and module.training and self.calls.take is not None and self.calls.held(module):
            return self._take(module, args, kwargs)
        return self.calls.whole(module, args, kwargs)

    def _refuse_module(self, module: Module, reason: Uncuttable | str | None) -> NoReturn:
        name = type(module).__name__
        why = (
            "%s; nor can %s: %s" % (self._outer, name, reason)
            if self._outer
            else "%s cannot be cut: %s" % (name, reason)
        )
        self._refuse(why + (self._but if getattr(reason, "elsewhere", True) else NOWHERE))

    def _plan(self, module: Module, tree: Tree, leaves: Leaves, ranks: OneRank) -> Planned:
        """None: the call runs whole, as none of its inputs has a row for each sample."""
        tried = list(candidates(self._torch, leaves, self._context.sizes))
        if not ranks.any(any(dims.count > self._most(dims) for dims in tried)):
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
            plan = Plan(self._torch, module, self._context, tuple(self._context.sizes), leaves, ranks)
            for dims in tried[: ranks.min(len(tried))]:
                try:
                    looks = CallLooks(self._torch, plan, tree, leaves, dims)
                    ranks.agreed(functools.partial(looks.check, self._most(dims)))
                except (Mismatch, NoMean) as mismatch:
                    if ranks.together and not isinstance(mismatch, Mismatch):
                        raise  # (the others do not go on)
                    # (of sequences with as many steps as samples, a cut of the steps returns what is of all of them)
                    reason = reason or mismatch
                    continue
                self._plans.note(key, module, leaves, (plan, dims))
                return plan, dims
        except Uncuttable as found:
            # Of the likeliest dimensions, if several were tried.
            reason = reason or found
        if self._plans.is_outdated(key, module):
            self._refuse_module(module, "%s, since settings of it were changed between its calls" % reason)
        alone = self.count == 0 and not ranks.together and not isinstance(reason, WritesWeights)
        if (
            alone
            and is_made_of_models(module)
            and (isinstance(reason, (Mismatch, NoMean)) or self.compared.in_loss_of(module, tree, leaves))
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

    def _same_thread(self) -> None:
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        elif self._thread != thread:
            self._refuse("several threads train")
