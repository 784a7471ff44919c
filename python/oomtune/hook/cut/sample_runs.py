"""Runs of a module on a few samples of its batch, together and separately."""

from __future__ import annotations

from .comparison import Comparison, half_of
from .outputs import WeightedSum
from .pytree import tree_leaves
from .reductions import Reductions, disagreement
from .refusal import Mismatch, Uncuttable
from .row_group import RowGroup
from .sample_draws import SampleDraws
from .state import fails_on_fewer, stateless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from ..types import Leaves, Tensor, Torch, Tree
    from .batch_dims import BatchDims
    from .fsdp import ShardedWeights
    from .outputs import Join
    from .ranks import OneRank
    from .sandbox import Sandbox


#: As many samples, in so many different choices, show of what kind a value for all of them is.
MANY, CHOICES = 31, 3
#: Random draws for each of which an output has to join in the same way: as many tokens are masked in each sample by chance now and then.
TURNS = 6


class SampleRuns:
    """`run(leaves)` runs the module on other input leaves; `dims`: how they are cut; `parameters`: what gets gradients of the module's own."""

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
        self.run = run
        self.leaves = leaves
        self.dims = dims
        self.sandbox = sandbox
        self.parameters = parameters
        self.ranks = ranks
        self.sharded = sharded
        self.reductions = Reductions(torch, leaves, dims)

    def with_leaves(self, leaves: Leaves) -> SampleRuns:
        """The same, of other samples."""
        return SampleRuns(
            self._torch, self.run, leaves, self.dims, self.sandbox, self.parameters, self.ranks, self.sharded
        )

    # -- which samples

    def chosen_rows(self) -> list[int]:
        """Two or three samples on which the reductions differ as much as possible, in the order in which they are in the batch: a
        script may have sorted them (packed sequences are)."""
        every = list(range(self.dims.count))
        if len(every) < 3:
            return every
        apart = disagreement(self.reductions.named(), [every[:1], every[1:]]) or (0, 1)
        low, high = apart if apart[0] != apart[1] else (0, 1)
        return sorted([low, next(row for row in every if row not in (low, high)), high])

    def unlike_rows(self, most: int) -> list[int]:
        """So many samples, in order, among them those that differ the most: a mean over tokens is one over samples as long as all are of
        one length, which may be a whole number or show in what is zero (padding, a mask)."""
        torch, found = self._torch, self.chosen_rows()
        for leaf, dim in zip(self.leaves, self.dims.dims):
            if dim is None or not isinstance(leaf, torch.Tensor) or leaf.is_sparse or not leaf.numel():
                continue
            each = leaf.detach().movedim(dim, 0).reshape(self.dims.count, -1)
            # Neither makes a copy of the batch, for which there may be no room.
            real = each.is_floating_point() or each.is_complex()
            try:
                figures = torch.count_nonzero(each, dim=1) if real else each.sum(1)
            except RuntimeError:
                continue  # kinds of numbers that torch only keeps (float8, uint16)
            found += [int(figures.argmin()), int(figures.argmax())]
        rows = list(dict.fromkeys([*found, *range(self.dims.count)]))
        return sorted(rows[:most])

    def many_rows(self, most: int) -> Iterator[list[int]]:
        """Choices of more samples than three, spread over the batch; none where a micro-batch may have no more than `most`."""
        count = min(MANY, most, self.dims.count)
        for choice in range(CHOICES if count > 3 else 0):
            first = (self.dims.count - 1) * choice // (CHOICES * count)
            yield [first + (self.dims.count - 1 - first) * place // (count - 1) for place in range(count)]

    def inputs(self, rows: list[int], grad: bool = False) -> Leaves:
        found: Leaves = []
        for leaf, chosen in zip(self.leaves, self.dims.parts(self.leaves, RowGroup(self._torch, rows))):
            part = chosen
            if isinstance(part, self._torch.Tensor):
                part = part.detach()
                if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad:
                    part.requires_grad_(grad)
            found.append(part)
        return found

    def note_learning(self) -> None:
        """After a run: a buffer that it has set to get gradients is one of the parameters."""
        known = set(map(id, self.parameters))
        self.parameters.extend(each for each in self.sandbox.learning_buffers() if id(each) not in known)

    # -- together and separately

    def compare(self, rows: list[int]) -> Comparison:
        """In training mode if nothing draws random numbers, else in evaluation mode: the first mode that is not random."""
        error: Exception | None = None
        seen: Comparison | None = None
        weights = self.sandbox.weights()
        for precise in (True, False):
            for evaluation in (False, True):
                try:
                    found = self._batches(rows, evaluation, precise)
                except Exception as failed:
                    final = isinstance(failed, Uncuttable) and not isinstance(failed, Mismatch)
                    if final or out_of_memory(failed):
                        raise
                    error = failed.with_traceback(None)  # whose frames hold the batch
                    self.ranks.any(True)
                    continue
                if self.ranks.any(False):
                    error = error or RuntimeError("on another rank")
                    continue
                if self.ranks.any(seen is not None and not seen.similar(found)):
                    continue
                if not self.ranks.any(found.random):
                    return found
                seen = seen or found
            if seen:
                # (where one rank's forward pass waits for the others', none may fail by itself)
                hidden = self.ranks.any(seen.hides) and not self.ranks.together
                return (self._drawn_again(rows, precise, seen) if hidden else None) or seen
        weights.require_same()
        if isinstance(error, Mismatch):
            raise error
        raise fails_on_fewer(error, self.sandbox, self.dims.count)

    def compare_alone(self, rows: list[int], precise: bool) -> Comparison | None:
        """The same of many samples, on this rank alone, and as cheaply as can be; None: nothing can be seen."""
        for evaluation in (False, True):
            try:
                found = self._batches(rows, evaluation, precise)
            except Uncuttable:
                raise
            except Exception:
                # There is no room for it, or it does not run with a part of the samples: training goes on as it would have without this look.
                return None
            if not found.random:
                return found
        return None

    def _drawn_again(self, rows: list[int], precise: bool, seen: Comparison) -> Comparison | None:
        """The comparison where each sample draws the same random numbers in all runs; None: something draws otherwise, or how the outputs join
        depends on what is drawn (a mean over as many tokens as were masked)."""
        for evaluation in (False, True):
            try:
                found = self._in_turns(rows, evaluation, precise, seen)
            except Exception as failed:
                if out_of_memory(failed):
                    raise
                found = None
            if not self.ranks.any(found is None):
                return found
        return None

    def _in_turns(self, rows: list[int], evaluation: bool, precise: bool, seen: Comparison) -> Comparison | None:
        first: Comparison | None = None
        told: list[tuple[str, list[str]]] = []
        for turn in range(TURNS):
            found = self._batches(rows, evaluation, precise, turn)
            if found.random or not seen.similar(found):
                return None
            joins = [_told(join) for join in found.joins(self.reductions)]
            if first is not None and joins != told:
                return None
            first, told = first or found, joins
        return first

    def _batches(self, rows: list[int], evaluation: bool, precise: bool, turn: int | None = None) -> Comparison:
        """`turn`: each sample draws the same random numbers in all runs, and others at another turn."""
        half = half_of(rows)
        draws = None if turn is None else SampleDraws(self._torch, len(rows))

        def run(chosen: list[int], first: int = 0) -> Tree:
            inputs = self.inputs(chosen)
            if draws is None:
                return self.run(inputs)
            return draws.run(lambda: self.run(inputs), first, first + len(chosen))

        with self.sandbox.entered(evaluation, precise) as state, self._torch.no_grad():
            random = state if turn is None else self.sandbox.seeded(turn)
            buffers = self.sandbox.buffers()
            outputs = [stateless(self._torch, self.sandbox, lambda: run(rows), random)]
            written = self.sandbox.weights()
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
            other = changed() if self.ranks.together else None
            fine = precise and self.single()
            return Comparison(self._torch, rows, outputs, again, lambda: other or changed(), fine, (evaluation, turn))

    def single(self) -> bool:
        """Whether everything is computed in single precision or better."""
        if self.sharded is not None and self.sharded.coarse:
            return False
        kinds = (self._torch.float32, self._torch.float64)
        return all(parameter.dtype in kinds for parameter in self.parameters)


def _told(join: Join) -> tuple[str, list[str]]:
    return type(join).__name__, sorted(join.names) if isinstance(join, WeightedSum) else []


def out_of_memory(error: Exception) -> bool:
    from ..report.exceptions import is_oom

    return is_oom(error)
