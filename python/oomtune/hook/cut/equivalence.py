"""Before a module's first cut call, runs it on two or three samples, together and separately: checks that both give the same,
and finds how its outputs join."""

from __future__ import annotations

import functools

from .attributes import alike
from .comparison import COARSE, FINE
from .constant_weights import varied
from .gradient_check import GradientCheck
from .outputs import Concatenated, Shared, WeightedSum
from .pytree import tree_leaves
from .redraws import Redraws
from .refusal import NoMean, Uncuttable, Unseen
from .sample_runs import out_of_memory
from .saved_tensors import SavedTensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import MaybeTensors, Torch
    from .comparison import Mode
    from .outputs import Join
    from .sample_runs import SampleRuns


class EquivalenceCheck:
    """What `runs` of a module show of it."""

    def __init__(self, torch: Torch, runs: SampleRuns) -> None:
        self._torch = torch
        self._runs = runs
        #: Of found(): the joins of the outputs, whether each requires gradients, and the mode that showed them (None: each run draws other
        #: random numbers).
        self._joined: list[Join] = []
        self._differentiable: list[bool] = []
        self._mode: Mode | None = None
        #: Of found(), too: anything is computed in less than single precision.
        self.coarse = not runs.single()
        #: Of found(): how many numbers the outputs have for each sample.
        self.numbers = 0

    def redraws(self) -> Redraws:
        tolerance = FINE if self._runs.single() else COARSE
        return Redraws(
            self._torch,
            self._runs.sandbox,
            lambda: self._runs.run(self._runs.inputs(self._runs.chosen_rows())),
            tolerance,
            self._runs.ranks,
        )

    def found(self, most: int) -> tuple[list[Join], list[bool], bool]:
        """(a join for each leaf of the output, whether each requires gradients, whether reentrant checkpointing is in the graph).
        `most`: samples that a micro-batch may have. Raises Uncuttable."""
        rows = self._runs.chosen_rows()
        joins = self._joins(rows)
        if not self._runs.ranks.together:
            self._check_values(joins, most)
        differentiable, reentrant = self._runs.ranks.agreed(lambda: self._check_graph(rows[:1], len(joins)))
        for index, (join, learns) in enumerate(zip(joins, differentiable)):
            if isinstance(join, Shared) and not learns:
                joins[index] = WeightedSum(join.names)  # a figure (the accuracy, say) that was the same by chance
        if not self._runs.ranks.same([type(join).__name__ for join in joins]):
            raise Uncuttable("its outputs join in another way on another rank")
        self._joined, self._differentiable = joins, differentiable
        return joins, differentiable, reentrant

    def check_gradients(self, most: int, gradients: Callable[..., MaybeTensors]) -> None:
        """After found(): raises OtherGradients if those of `most` samples, or of two or three, are not those of each part of them together.
        `gradients`: see GradientCheck. Where each run draws other random numbers, nothing can be seen."""
        rows = self._runs.chosen_rows()
        rows = rows if most >= len(rows) else rows[:: len(rows) - 1]
        if 1 < len(rows) <= most and self._mode is not None and any(self._differentiable):
            GradientCheck(
                self._torch,
                self._runs,
                rows,
                self._joined,
                self._differentiable,
                self._mode,
                self.coarse,
                gradients,
            ).require_same()

    def compares_samples(self) -> bool:
        """Whether the module makes a loss of its own that compares the samples. Raises Mismatch."""
        # Three and two: such a loss may ask for two at least. Not two and two: the logarithm of four, with which a contrast of four
        # begins, is twice that of two, as if it were a sum.
        return self._runs.compare(self._runs.unlike_rows(5)).compares_samples(self._runs.reductions)

    def keeps(self) -> list[str]:
        """Names of what a forward pass leaves on the modules, or where hooks on them write to, and the next one, of other samples, leaves
        otherwise: a figure of the samples or a count, and no cache."""
        rows = self._runs.chosen_rows()
        left: list[dict[str, Any]] = []
        with self._runs.sandbox.entered(False, False) as random, self._torch.enable_grad():
            attributes = self._runs.sandbox.attributes()
            for chosen in (rows[:-1], rows[1:]):
                random.restore()
                try:
                    self._runs.run(self._runs.inputs(chosen))
                except Exception as failed:
                    if out_of_memory(failed):
                        raise
                    return []  # not of so few samples: nothing is known of it
                left.append(attributes.left())
        one, other = left
        return [name for name in sorted(other) if not alike(self._torch, one.get(name), other[name], unknown=True)]

    def check_untouched(self) -> None:
        """Raises Uncuttable if a forward pass moves a generator or changes a buffer or an attribute."""
        inputs = self._runs.inputs(self._runs.chosen_rows())
        with self._runs.sandbox.entered(False, False, still=False) as random, self._torch.no_grad():
            buffers, attributes = self._runs.sandbox.buffers(), self._runs.sandbox.attributes()
            attributes.copy()  # (a metric gathers what it has seen)
            try:
                self._runs.run(inputs)
            except Exception as failed:
                if out_of_memory(failed):
                    raise
                raise Unseen("its forward pass fails on fewer samples") from failed
            if self._runs.sandbox.random() != random or buffers.changed(self._torch) or attributes.touched():
                raise Uncuttable("its forward pass leaves something behind")

    def _check_values(self, joins: list[Join], most: int) -> None:
        """Leaves to values for all samples what holds for more of them, too: two or three may all count in a mean of some (of the valid
        ones, of the hardest half), or one part of them have none that does. Raises NoMean."""
        values = [(index, join) for index, join in enumerate(joins) if type(join) is WeightedSum]
        for rows in self._runs.many_rows(most) if values else ():
            seen = self._runs.compare(rows)
            for index, join in values:
                if seen.random or not seen.holds_value(index):
                    continue
                join.names = [one.name for one in seen.holding(self._runs.reductions.named(join.names), index)]
                if not join.names:
                    raise NoMean

    def _joins(self, rows: list[int]) -> list[Join]:
        seen = self._runs.compare(rows)
        self._mode = None if seen.random else seen.mode
        self.numbers = seen.numbers
        joins = self._runs.ranks.agreed(functools.partial(seen.joins, self._runs.reductions))
        if not self._runs.ranks.any(seen.undecided):
            return joins
        with varied(self._torch, [] if self._runs.sharded is not None else self._runs.parameters):
            seen = self._runs.compare(rows)
            others = self._runs.ranks.agreed(functools.partial(seen.joins, self._runs.reductions))
        if self._runs.ranks.any(seen.undecided):
            raise Uncuttable("its samples are too much alike to see which rows of its output are whose")
        return [other if isinstance(join, Concatenated) else join for join, other in zip(joins, others)]

    # -- the graph behind the outputs

    def _check_graph(self, rows: list[int], count: int) -> tuple[list[bool], bool]:
        """(which outputs require gradients, whether there is reentrant checkpointing). Raises Uncuttable if gradients would be
        lost: of a tensor from outside the call, or through something kept besides the outputs."""
        torch = self._torch
        saved = SavedTensors(torch)
        with self._runs.sandbox.entered(False, False):
            inputs = self._runs.inputs(rows, grad=True)
            try:
                outputs = tree_leaves(torch, saved.run(self._runs.run, inputs))
            except Exception as failed:
                if out_of_memory(failed):
                    raise
                raise Uncuttable(
                    "its forward pass fails on one sample (%s: %s)" % (type(failed).__name__, str(failed)[:200])
                ) from failed
            differentiable = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in outputs]
            self._runs.note_learning()
            own = self._runs.parameters + ([] if self._runs.sharded is None else self._runs.sharded.full())
            known = {id(tensor) for tensor in [*inputs, *own] if isinstance(tensor, torch.Tensor)}
            learning = [leaf for leaf, flag in zip(outputs, differentiable) if flag]
            reentrant = saved.graph(learning, known, inputs)
            del learning
            del outputs, inputs
            self._runs.sandbox.drop_graphs()
            saved.check_released()
        self.coarse = self.coarse or saved.coarse
        return differentiable + [False] * (count - len(differentiable)), reentrant
