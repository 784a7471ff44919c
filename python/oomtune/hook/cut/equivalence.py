"""Before a module's first cut call, runs it on two or three samples, together and separately: checks that both give the same,
and finds how its outputs join."""

from __future__ import annotations

import functools

from .attributes import alike
from .comparison import COARSE, FINE, NO_MEAN, Comparison, half_of
from .constant_weights import redrawn, varied
from .outputs import Concatenated, Shared, WeightedSum
from .pytree import tree_leaves
from .redraws import Redraws
from .reductions import Reductions, disagreement
from .refusal import Mismatch, Uncuttable, Unreduced, Unseen
from .row_group import RowGroup
from .sample_draws import SampleDraws
from .saved_tensors import SavedTensors
from .state import fails_on_fewer, stateless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Sequence

    from ..types import Leaves, Span, Tensor, Torch, Tree
    from .batch_dims import BatchDims
    from .fsdp import ShardedWeights
    from .outputs import Join
    from .ranks import OneRank
    from .reductions import Reduction
    from .sandbox import Sandbox


#: Random draws for each of which an output has to join in the same way: as many tokens are masked in each sample by chance now and then.
TURNS = 6


class EquivalenceCheck:
    """`run(leaves)` runs the module on other input leaves; `dims`: how they are cut; `parameters`: the trained ones."""

    def __init__(
        self,
        torch: Torch,
        run: Callable[[Leaves], Tree],
        leaves: Leaves,
        dims: BatchDims,
        sandbox: Sandbox,
        parameters: list[Tensor],
        ranks: OneRank,
        sharded: ShardedWeights | None,
    ) -> None:
        self._torch = torch
        self._run = run
        self._leaves = leaves
        self._dims = dims
        self._sandbox = sandbox
        self._parameters = parameters
        self._ranks = ranks
        self._sharded = sharded
        self._reductions = Reductions(torch, leaves, dims)

    def redraws(self) -> Redraws:
        tolerance = FINE if self._single() else COARSE
        return Redraws(
            self._torch,
            self._sandbox,
            lambda: self._run(self._inputs(self._chosen_rows())),
            tolerance,
            self._ranks,
        )

    def found(self) -> tuple[list[Join], list[bool], bool]:
        """(a join for each leaf of the output, whether each requires gradients, whether reentrant checkpointing is in the graph).
        Raises Uncuttable."""
        rows = self._chosen_rows()
        joins = self._joins(rows)
        differentiable, reentrant = self._ranks.agreed(lambda: self._check_graph(rows[:1], len(joins)))
        for index, (join, learns) in enumerate(zip(joins, differentiable)):
            if isinstance(join, Shared) and not learns:
                joins[index] = WeightedSum(join.names)  # a figure (the accuracy, say) that was the same by chance
        if not self._ranks.same([type(join).__name__ for join in joins]):
            raise Uncuttable("its outputs join in another way on another rank")
        return joins, differentiable, reentrant

    def compares_samples(self) -> bool:
        """Whether the module makes a loss of its own that compares the samples. Raises Mismatch."""
        # Three and two: such a loss may ask for two at least. Not two and two: the logarithm of four, with which a contrast of four
        # begins, is twice that of two, as if it were a sum.
        return self._compare(self._unlike_rows(5)).compares_samples(self._reductions)

    def keeps(self) -> list[str]:
        """Names of what a forward pass leaves on the modules, or where hooks on them write to, and the next one, of other samples, leaves
        otherwise: a figure of the samples or a count, and no cache."""
        rows = self._chosen_rows()
        left: list[dict[str, Any]] = []
        with self._sandbox.entered(False, False) as random, self._torch.enable_grad():
            attributes = self._sandbox.attributes()
            for chosen in (rows[:-1], rows[1:]):
                random.restore()
                try:
                    self._run(self._inputs(chosen))
                except Exception as failed:
                    if _out_of_memory(failed):
                        raise
                    return []  # not of so few samples: nothing is known of it
                left.append(attributes.left())
        one, other = left
        return [name for name in sorted(other) if not alike(self._torch, one.get(name), other[name], unknown=True)]

    def check_untouched(self) -> None:
        """Raises Uncuttable if a forward pass moves a generator or changes a buffer or an attribute."""
        inputs = self._inputs(self._chosen_rows())
        with self._sandbox.entered(False, False, still=False) as random, self._torch.no_grad():
            buffers, attributes = self._sandbox.buffers(), self._sandbox.attributes()
            attributes.copy()  # (a metric gathers what it has seen)
            try:
                self._run(inputs)
            except Exception as failed:
                if _out_of_memory(failed):
                    raise
                raise Unseen("its forward pass fails on fewer samples") from failed
            if self._sandbox.random() != random or buffers.changed(self._torch) or attributes.touched():
                raise Uncuttable("its forward pass leaves something behind")

    def _joins(self, rows: list[int]) -> list[Join]:
        seen = self._compare(rows)
        joins = self._ranks.agreed(functools.partial(seen.joins, self._reductions))
        if not self._ranks.any(seen.undecided):
            return joins
        with varied(self._torch, [] if self._sharded is not None else self._parameters):
            seen = self._compare(rows)
            others = self._ranks.agreed(functools.partial(seen.joins, self._reductions))
        if self._ranks.any(seen.undecided):
            raise Uncuttable("its samples are too much alike to see which rows of its output are whose")
        return [other if isinstance(join, Concatenated) else join for join, other in zip(joins, others)]

    def settle(self, index: int, names: Collection[str], parts: Sequence[Sequence[int]]) -> list[str]:
        """Names of the reductions that hold for the output at `index`, now that they weight the micro-batches differently."""
        candidates = self._reductions.named(names)
        if self._ranks.together:
            return self._settled_together(index, candidates, parts)
        rows = disagreement(candidates, parts)
        while rows is not None:
            kept = self._held(index, candidates, parts, rows)
            if len(kept) == len(candidates):
                with redrawn(self._torch, self._parameters):
                    kept = self._held(index, candidates, parts, rows)
            if not kept or len(kept) == len(candidates):
                raise Unreduced(NO_MEAN)
            candidates = kept
            rows = disagreement(candidates, parts)
        return [reduction.name for reduction in candidates]

    def _held(
        self, index: int, candidates: list[Reduction], parts: Sequence[Sequence[int]], rows: Span
    ) -> list[Reduction]:
        """The candidates that hold on two rows on which they differ; all of them: they cannot be told apart."""
        kept = self._compare(sorted(rows)).holding(candidates, index)
        return kept if len(kept) < len(candidates) else self._told_apart(index, candidates, parts, rows)

    def _settled_together(self, index: int, candidates: list[Reduction], parts: Sequence[Sequence[int]]) -> list[str]:
        """settle() if no rank may run the module alone: every rank runs it as often as any must."""
        rows = disagreement(candidates, parts)
        while self._ranks.any(rows is not None):
            seen = self._compare(sorted(rows or (0, 1)))
            kept = candidates
            if rows is not None:
                kept = seen.holding(candidates, index)
            if self._ranks.any(rows is not None and not 0 < len(kept) < len(candidates)):
                raise Unreduced(NO_MEAN)
            candidates = kept
            rows = disagreement(candidates, parts)
        return [reduction.name for reduction in candidates]

    def _told_apart(
        self, index: int, candidates: list[Reduction], parts: Sequence[Sequence[int]], rows: Span
    ) -> list[Reduction]:
        """The candidates that still hold when one row is filled with an ignored value: for reductions that differ by less than
        rounding on the samples themselves (the label 0 occurs, and may be ignored); else when one row has one value at its
        beginning that counts, and the other two (a loss of the next token counts one less in each row)."""
        for reduction in candidates[1:]:
            if reduction.ignored is None or reduction.weights(parts) == candidates[0].weights(parts):
                continue
            for leaves in (self._marked(reduction, rows[1]), self._begun(reduction, rows)):
                marked = self._with_leaves(leaves)
                seen = marked._compare(sorted(rows))
                others = marked._reductions.named([one.name for one in candidates])
                names = [one.name for one in seen.holding(others, index)]
                if 0 < len(names) < len(candidates):
                    return [one for one in candidates if one.name in names]
        return candidates

    def _with_leaves(self, leaves: Leaves) -> EquivalenceCheck:
        return EquivalenceCheck(
            self._torch,
            self._run,
            leaves,
            self._dims,
            self._sandbox,
            self._parameters,
            self._ranks,
            self._sharded,
        )

    def _marked(self, reduction: Reduction, row: int) -> Leaves:
        """The leaves, with one row of the leaf that the reduction counts filled with the value that it ignores."""
        leaves, number = list(self._leaves), reduction.leaf
        if number is not None:
            leaves[number] = leaves[number].detach().clone()
            leaves[number].select(self._dims.dims[number], row).fill_(reduction.ignored)
        return leaves

    def _begun(self, reduction: Reduction, rows: Span) -> Leaves:
        """The leaves, with two values that count in the first of the rows, and one in the other."""
        leaves, number = self._marked(reduction, rows[0]), reduction.leaf
        if number is None or leaves[number].dim() < 2:
            return leaves
        leaf = leaves[number]
        counted = leaf[leaf != reduction.ignored].flatten()[:1]
        for row, kept in zip(rows, (2, 1)):
            values = leaf.select(self._dims.dims[number], row)
            values.fill_(reduction.ignored)
            values[:kept] = counted if len(counted) else reduction.ignored
        return leaves

    def _unlike_rows(self, most: int) -> list[int]:
        """So many samples, in order, among them those that differ the most: a mean over tokens is one over samples as long as all are of
        one length, which may be a whole number or show in what is zero (padding, a mask)."""
        torch, found = self._torch, self._chosen_rows()
        for leaf, dim in zip(self._leaves, self._dims.dims):
            if dim is None or not isinstance(leaf, torch.Tensor) or leaf.is_sparse or not leaf.numel():
                continue
            each = leaf.detach().movedim(dim, 0).reshape(self._dims.count, -1)
            # Neither makes a copy of the batch, for which there may be no room.
            real = each.is_floating_point() or each.is_complex()
            try:
                figures = torch.count_nonzero(each, dim=1) if real else each.sum(1)
            except RuntimeError:
                continue  # kinds of numbers that torch only keeps (float8, uint16)
            found += [int(figures.argmin()), int(figures.argmax())]
        rows = list(dict.fromkeys([*found, *range(self._dims.count)]))
        return sorted(rows[:most])

    def _chosen_rows(self) -> list[int]:
        """Two or three samples on which the reductions differ as much as possible, in the order in which they are in the batch: a
        script may have sorted them (packed sequences are)."""
        every = list(range(self._dims.count))
        if len(every) < 3:
            return every
        apart = disagreement(self._reductions.named(), [every[:1], every[1:]]) or (0, 1)
        low, high = apart if apart[0] != apart[1] else (0, 1)
        return sorted([low, next(row for row in every if row not in (low, high)), high])

    def _inputs(self, rows: list[int], grad: bool = False) -> Leaves:
        found: Leaves = []
        for leaf, chosen in zip(self._leaves, self._dims.parts(self._leaves, RowGroup(self._torch, rows))):
            part = chosen
            if isinstance(part, self._torch.Tensor):
                part = part.detach()
                if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad:
                    part.requires_grad_(grad)
            found.append(part)
        return found

    # -- together and separately

    def _compare(self, rows: list[int]) -> Comparison:
        """In training mode if nothing draws random numbers, else in evaluation mode: the first mode that is not random."""
        error: Exception | None = None
        seen: Comparison | None = None
        weights = self._sandbox.weights()
        for precise in (True, False):
            for evaluation in (False, True):
                try:
                    found = self._batches(rows, evaluation, precise)
                except Exception as failed:
                    final = isinstance(failed, Uncuttable) and not isinstance(failed, Mismatch)
                    if final or _out_of_memory(failed):
                        raise
                    error = failed.with_traceback(None)  # whose frames hold the batch
                    self._ranks.any(True)
                    continue
                if self._ranks.any(False):
                    error = error or RuntimeError("on another rank")
                    continue
                if self._ranks.any(seen is not None and not seen.similar(found)):
                    continue
                if not self._ranks.any(found.random):
                    return found
                seen = seen or found
            if seen:
                # (where one rank's forward pass waits for the others', none may fail by itself)
                hidden = self._ranks.any(seen.hides) and not self._ranks.together
                return (self._drawn_again(rows, precise, seen) if hidden else None) or seen
        weights.require_same()
        if isinstance(error, Mismatch):
            raise error
        raise Unseen(fails_on_fewer(error, self._sandbox, self._dims.count))

    def _drawn_again(self, rows: list[int], precise: bool, seen: Comparison) -> Comparison | None:
        """The comparison where each sample draws the same random numbers in all runs; None: something draws otherwise, or how the outputs join
        depends on what is drawn (a mean over as many tokens as were masked)."""
        for evaluation in (False, True):
            try:
                found = self._in_turns(rows, evaluation, precise, seen)
            except Exception as failed:
                if _out_of_memory(failed):
                    raise
                found = None
            if not self._ranks.any(found is None):
                return found
        return None

    def _in_turns(self, rows: list[int], evaluation: bool, precise: bool, seen: Comparison) -> Comparison | None:
        first: Comparison | None = None
        told: list[tuple[str, list[str]]] = []
        for turn in range(TURNS):
            found = self._batches(rows, evaluation, precise, turn)
            if found.random or not seen.similar(found):
                return None
            joins = [_told(join) for join in found.joins(self._reductions)]
            if first is not None and joins != told:
                return None
            first, told = first or found, joins
        return first

    def _batches(self, rows: list[int], evaluation: bool, precise: bool, turn: int | None = None) -> Comparison:
        """`turn`: each sample draws the same random numbers in all runs, and others at another turn."""
        half = half_of(rows)
        draws = None if turn is None else SampleDraws(self._torch, len(rows))

        def run(chosen: list[int], first: int = 0) -> Tree:
            inputs = self._inputs(chosen)
            if draws is None:
                return self._run(inputs)
            return draws.run(lambda: self._run(inputs), first, first + len(chosen))

        with self._sandbox.entered(evaluation, precise) as state, self._torch.no_grad():
            random = state if turn is None else self._sandbox.seeded(turn)
            buffers = self._sandbox.buffers()
            outputs = [stateless(self._torch, self._sandbox, lambda: run(rows), random)]
            written = self._sandbox.weights()
            for first, chosen in ((0, rows[:half]), (half, rows[half:])):
                random.restore()
                buffers.restore()
                outputs.append(tree_leaves(self._torch, run(chosen, first)))
                written.require_same()
            # This run draws other random numbers.
            buffers.restore()
            again = tree_leaves(self._torch, run(rows))
            written.require_same()

            def changed() -> Leaves:
                random.restore()
                buffers.restore()
                return tree_leaves(self._torch, run([*rows[:-1], rows[0]]))

            # Several ranks make the same forward passes, whether one of them draws or not.
            other = changed() if self._ranks.together else None
            fine = precise and self._single()
            return Comparison(self._torch, rows, outputs, again, lambda: other or changed(), fine)

    def _single(self) -> bool:
        """Whether everything is computed in single precision or better."""
        if self._sharded is not None and self._sharded.coarse:
            return False
        kinds = (self._torch.float32, self._torch.float64)
        return all(parameter.dtype in kinds for parameter in self._parameters)

    # -- the graph behind the outputs

    def _check_graph(self, rows: list[int], count: int) -> tuple[list[bool], bool]:
        """(which outputs require gradients, whether there is reentrant checkpointing). Raises Uncuttable if gradients would be
        lost: of a tensor from outside the call, or through something kept besides the outputs."""
        torch = self._torch
        saved = SavedTensors(torch)
        with self._sandbox.entered(False, False):
            inputs = self._inputs(rows, grad=True)
            try:
                outputs = tree_leaves(torch, saved.run(self._run, inputs))
            except Exception as failed:
                if _out_of_memory(failed):
                    raise
                raise Uncuttable(
                    "its forward pass fails on one sample (%s: %s)" % (type(failed).__name__, str(failed)[:200])
                ) from failed
            differentiable = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in outputs]
            own = self._parameters + ([] if self._sharded is None else self._sharded.full())
            known = {id(tensor) for tensor in [*inputs, *own] if isinstance(tensor, torch.Tensor)}
            learning = [leaf for leaf, flag in zip(outputs, differentiable) if flag]
            foreign, reentrant = saved.foreign(learning, known, inputs)
            del learning
            del outputs, inputs
            self._sandbox.drop_graphs()
            if foreign:
                raise Uncuttable("it uses a tensor that learns and is neither an input nor a parameter of its own")
            saved.check_released()
        return differentiable + [False] * (count - len(differentiable)), reentrant


def _told(join: Join) -> tuple[str, list[str]]:
    return type(join).__name__, sorted(join.names) if isinstance(join, WeightedSum) else []


def _out_of_memory(error: Exception) -> bool:
    from ..report.exceptions import is_oom

    return is_oom(error)
