"""What is looked at in one call of a module before it is cut: the module runs on a few of the call's samples, aside of the training."""

from __future__ import annotations

from .autocast import AutocastState
from .buffers import compiled
from .cached_weights import CachedWeights
from .dense import dense_instead, has_rows
from .equivalence import EquivalenceCheck
from .micro_batch_check import MicroBatchCheck, is_due, most_looked_at
from .outputs import Shared, WeightedSum
from .pytree import has_packed, tree_with
from .reduction_choice import ReductionChoice
from .reductions import disagreement
from .refusal import Uncuttable, Unseen
from .sample_runs import SampleRuns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..types import Leaves, MaybeTensors, Tensor, Torch, Tree
    from .batch_dims import BatchDims
    from .padding import Padding
    from .plan import Plan
    from .reductions import Reductions
    from .row_group import RowGroup


class CallLooks:
    """`tree`: the call's arguments, with their `leaves`; `dims`: along which of their dimensions it would be cut."""

    def __init__(self, torch: Torch, plan: Plan, tree: Tree, leaves: Leaves, dims: BatchDims) -> None:
        self._torch = torch
        self._plan = plan
        self._tree = tree
        self._leaves = leaves
        self._dims = dims

    # -- before a call of its kind is cut for the first time

    def check(self, most: int = 0) -> None:
        """Tells the plan how outputs join, if losses and gradients of at most `most` samples at a time are the same. Raises Uncuttable."""
        plan = self._plan
        check = self._equivalence()
        # (modules that communicate would wait for ranks that have nothing to cut)
        plan.without_cudnn = plan.keeps_last() and check.redraws().without_cudnn(plan.modules)
        plan.joins, plan.differentiable, plan.reentrant = check.found(most)
        plan.most_looked_at, plan.coarse = most_looked_at(check.numbers), check.coarse
        if self._torch.is_grad_enabled() and self._runs_backward_alone():
            check.check_gradients(most, self._gradients)
        if plan.without_cudnn:
            plan.context.warn("cudnn")

    def check_untouched(self) -> None:
        """Raises Uncuttable if micro-batches would draw other random numbers, or leave other buffers or statistics than the whole batch."""
        norm = self._torch.nn.modules.batchnorm._NormBase
        if any(isinstance(each, norm) and each.training for each in self._plan.modules):
            raise Uncuttable("it has batch normalisation")
        self._equivalence().check_untouched()

    def compares_samples(self) -> bool:
        """Whether the module makes a loss of its own that compares the samples. Raises Uncuttable."""
        return self._equivalence().compares_samples()

    def _runs_backward_alone(self) -> bool:
        """Whether passes with gradients wait for no other rank, exchange nothing, have nothing compiled for a few samples, and hold no more
        than the training's do: an optimizer that steps in the backward pass never has all gradients at once."""
        plan = self._plan
        exchanges = plan.ranks.together or (plan.reentrant and plan.context.exchanges)
        steps = any(getattr(each, "_post_accumulate_grad_hooks", None) for each in plan.learns)
        alone = plan.keeps_last() and not exchanges and not steps
        return alone and not any(map(compiled, plan.not_compiled.modules()))

    def _gradients(self, outputs: list[Tensor], inputs: list[Tensor], given: list[Tensor]) -> MaybeTensors:
        """autograd.grad(), for reentrant checkpointing, too, which can do without hooks only by backward()."""
        plan = self._plan
        with AutocastState(self._torch).disabled(), plan.in_backward():
            if not plan.reentrant:
                return self._torch.autograd.grad(outputs, inputs, given, allow_unused=True)
            before = [each.grad for each in inputs]
            try:
                for each in inputs:
                    each.grad = None
                plan.context.backward(outputs, given)
                return tuple(each.grad for each in inputs)
            finally:
                for each, gradient in zip(inputs, before):
                    each.grad = gradient

    # -- before each cut call

    def shortened(self, padding: Padding) -> dict[int, int] | None:
        """By number of each output that is shorter without padding: its dimension. None: padding cannot be left out."""
        plan, leaves = self._plan, self._leaves
        if plan.even or plan.ranks.together or any(getattr(leaf, "requires_grad", False) for leaf in leaves):
            return None
        kinds = (self._torch.float32, self._torch.float64)
        fine = all(parameter.dtype in kinds for parameter in plan.learns)
        return plan.trimming.outputs(padding, leaves, self._dims, self._run, plan.sandbox(), fine)

    def settle(self, reductions: Reductions, parts: Sequence[RowGroup]) -> None:
        """Decides between reductions of an output that all held so far, and now differ. Raises Unreduced."""
        rows = [part.rows for part in parts]
        joins, ranks = self._plan.joins, self._plan.ranks
        differ = [
            index
            for index, join in enumerate(joins)
            if isinstance(join, WeightedSum) and not isinstance(join, Shared) and _differ(reductions, join.names, rows)
        ]
        if not ranks.any(bool(differ)):
            return
        for index, join in enumerate(joins):
            if ranks.any(index in differ) and isinstance(join, WeightedSum):
                join.names = ReductionChoice(self._torch, self._runs(), index, rows).among(join.names)

    def look_again(self, rows: Sequence[int]) -> None:
        """Now and then looks at one of the micro-batches, the samples `rows`. Raises Uncuttable."""
        plan = self._plan
        if not is_due(plan.calls + 1) or plan.ranks.together or not plan.keeps_last():
            return
        check = MicroBatchCheck(self._torch, self._runs(), plan.joins, plan.differentiable, plan.coarse)
        try:
            check.require_same(list(rows), plan.most_looked_at)
        except Uncuttable as reason:
            if plan.was_cut:
                reason.args = ("%s, which it did not at first" % reason,)
            raise
        finally:
            if plan.devices:
                # Blocks of other sizes than training's, which it would find no use for.
                self._torch.cuda.empty_cache()

    def tell_kept(self) -> None:
        """Before the first cut call: tells what the module keeps of a call, which will be that of a micro-batch."""
        plan = self._plan
        if plan.sharded is None and not plan.ranks.together and not compiled(plan.not_compiled):
            plan.tell_kept(self._equivalence().keeps())

    # -- runs

    def _equivalence(self) -> EquivalenceCheck:
        return EquivalenceCheck(self._torch, self._runs())

    def _runs(self) -> SampleRuns:
        if has_packed(self._torch, self._tree):
            raise Unseen(
                "it is given a PackedSequence, which has no row for each sample; packed in its own forward pass, sequences are cut "
                "with their samples"
            )
        for leaf, dim in zip(self._leaves, self._dims.dims):
            if dim is not None and isinstance(leaf, self._torch.Tensor) and not has_rows(leaf):
                raise Unseen("it is given a %s tensor: %s, it is cut with its samples" % dense_instead(leaf))
        plan = self._plan
        return SampleRuns(
            self._torch, self._run, self._leaves, self._dims, plan.sandbox(), plan.learns, plan.ranks, plan.sharded
        )

    def _run(self, leaves: Leaves) -> Tree:
        with CachedWeights(self._torch).entered():
            return self._plan.run_aside(tree_with(self._torch, self._tree, leaves, self._plan.lengths))


def _differ(reductions: Reductions, names: list[str], rows: Sequence[Sequence[int]]) -> bool:
    return len(names) > 1 and disagreement(reductions.named(names), rows) is not None
