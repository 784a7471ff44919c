"""Whether the gradients of a module's micro-batches add up to those of the whole batch. That its outputs join says nothing of what only its
backward pass makes of the samples: a loss that a function of its own adds there, a norm of all gradients to which a hook clips them."""

from __future__ import annotations

import functools

from .attributes import Attributes
from .comparison import half_of
from .gradients import HooksAside
from .outputs import Concatenated, Shared, WeightedSum
from .pytree import tree_leaves
from .reductions import disagreement
from .refusal import OtherGradients
from .row_group import RowGroup
from .sample_draws import SampleDraws
from .sample_runs import out_of_memory
from .sandbox import without_tf32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence

    from ..types import MaybeTensors, Tensor, Torch
    from .comparison import Mode
    from .outputs import Join
    from .sample_runs import SampleRuns

    Figures = List[Optional[Tensor]]

#: (the relative difference that is rounding, the part of the largest gradient from which on one counts), in single precision, where of a few
#: activations that round to the other side of zero the gradients are others, and in lower precision.
FINE, COARSE = (1e-2, 1e-3), (0.25, 0.1)


class GradientCheck:
    """For the `rows` of a module whose outputs were seen to have these `joins` in that `mode`; `differentiable`: which require gradients;
    `coarse`: computed in less than single precision. `gradients(outputs, inputs, given)`: torch.autograd.grad(), or what does the same."""

    def __init__(
        self,
        torch: Torch,
        runs: SampleRuns,
        rows: list[int],
        joins: Sequence[Join],
        differentiable: Sequence[bool],
        mode: Mode,
        coarse: bool,
        gradients: Callable[..., MaybeTensors],
    ) -> None:
        self._torch = torch
        self._runs = runs
        self._rows = rows
        half = half_of(rows)
        self._parts = [range(half), range(half, len(rows))]
        self._joins = joins
        self._differentiable = differentiable
        self._evaluation, self._turn = mode
        self._tolerance, self._least = COARSE if coarse else FINE
        self._gradients = gradients
        #: By number of each output that is a weighted sum: what the weights of the parts may be.
        self._possible = {
            number: self._weights_of(join) for number, join in enumerate(joins) if isinstance(join, WeightedSum)
        }
        #: Those that are tried. Without outputs of which several are possible, unless it is one alone.
        self._weights = {number: weights[0] for number, weights in self._possible.items() if len(weights) == 1}
        undecided = [number for number in self._possible if number not in self._weights and differentiable[number]]
        self._undecided = undecided[0] if len(undecided) == 1 else None
        self._noise: dict[Any, Tensor] = {}

    def require_same(self) -> None:
        """Raises OtherGradients if the parts' are not those of all. Says nothing of a module that does not run backward with so few samples."""
        # Given nothing, a backward pass has nothing but what it adds by itself, however little that is.
        for scale in (0, 1):
            try:
                same = self._holds(scale)
            except Exception as failed:
                if out_of_memory(failed):
                    raise
                return
            if not same:
                raise OtherGradients(
                    "its gradients of a part of the samples are not those of the whole batch: its backward pass adds a loss of its own, "
                    "say, or clips what it is given to a norm"
                )

    def _holds(self, scale: int) -> bool:
        """Whether they are, for any of the weights that are possible."""
        if self._undecided is None:
            return self._same(*self._found(scale))
        for weights in self._possible[self._undecided]:
            self._weights[self._undecided] = weights
            if self._same(*self._found(scale)):
                return True
        return False

    def _found(self, scale: int) -> list[Figures]:
        """The gradients for all rows, and for each part of them."""
        torch, sandbox = self._torch, self._runs.sandbox
        draws = None if self._turn is None else SampleDraws(torch, len(self._rows))
        given: dict[int, Tensor] = {}
        found: list[Figures] = []
        with sandbox.entered(self._evaluation, False) as state, without_tf32(torch):
            random = state if self._turn is None else sandbox.seeded(self._turn)
            buffers, attributes = sandbox.buffers(), Attributes(torch, self._runs.parameters)
            try:
                with HooksAside(self._runs.parameters), torch.enable_grad():
                    for index, part in enumerate([range(len(self._rows)), *self._parts]):
                        random.restore()
                        buffers.restore()
                        run = functools.partial(self._of, part, index - 1, given, scale)
                        found.append(run() if draws is None else draws.run(run, part.start, part.stop))
            finally:
                attributes.restore()
                sandbox.drop_graphs()
        return found

    def _of(self, part: range, index: int, given: dict[int, Tensor], scale: int) -> Figures:
        """For some of the rows; `index`: -1 for all. `given`: by number, for each output of all rows."""
        torch = self._torch
        inputs = self._runs.inputs([self._rows[at] for at in part], grad=True)
        starts = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
        leaves = tree_leaves(torch, self._runs.run(inputs))
        outputs: list[Tensor] = []
        of_outputs: list[Tensor] = []
        for number, (leaf, join) in enumerate(zip(leaves, self._joins)):
            if not self._differentiable[number] or (not isinstance(join, Concatenated) and number not in self._weights):
                continue
            if number not in given:
                given[number] = self._pattern(leaf, number) * scale
            gradient = given[number]
            if isinstance(join, Concatenated):
                gradient = join.part(gradient, RowGroup(torch, part)).reshape(leaf.shape)
            elif index >= 0:
                if not self._weights[number][index]:
                    continue
                gradient = gradient * self._weights[number][index]
            outputs.append(leaf)
            of_outputs.append(gradient)
        wanted = [*starts, *self._runs.parameters]
        found = self._gradients(outputs, wanted, of_outputs) if outputs else (None,) * len(wanted)
        torch.clear_autocast_cache()
        of_inputs = [torch.zeros_like(start) if each is None else each for start, each in zip(starts, found)]
        return [*of_inputs, *map(self._figures, found[len(starts) :])]

    def _weights_of(self, join: WeightedSum) -> list[list[float]]:
        """Those of all reductions that have not been told apart."""
        if isinstance(join, Shared):
            return [[0.0, 1.0]]
        parts = [[self._rows[at] for at in part] for part in self._parts]
        reductions = self._runs.reductions.named(join.names)
        if disagreement(reductions, parts) is None:
            return [reductions[0].weights(parts)]
        return [list(each) for each in dict.fromkeys(tuple(one.weights(parts)) for one in reductions)]

    def _pattern(self, leaf: Tensor, number: int) -> Tensor:
        """A gradient for an output, in which neither the rows nor anything else in it is alike."""
        found = self._torch.ones_like(leaf, requires_grad=False)
        for dim, size in enumerate(leaf.shape):
            found *= self._numbers(size, leaf, (number, dim)).reshape([-1] + [1] * (leaf.dim() - dim - 1))
        return found

    def _numbers(self, size: int, like: Tensor, seed: tuple[int, int] = (0, 0)) -> Tensor:
        """So many random numbers, for a seed always the same ones."""
        torch = self._torch
        key = size, seed, like.device, like.dtype
        if key not in self._noise:
            generator = torch.Generator().manual_seed(seed[0] << 8 | seed[1])
            values = torch.randn(size, generator=generator, dtype=torch.float32, device="cpu")
            self._noise[key] = values.to(like.device, like.dtype)
        return self._noise[key]

    def _figures(self, gradient: Tensor | None) -> Tensor | None:
        """A few random sums of a weight's gradient: the gradients of a module may not be in memory twice."""
        if gradient is None or gradient.dim() < 2:
            return gradient
        rows = gradient if gradient.dim() == 2 else gradient.flatten(1)
        return self._torch.mv(rows, self._numbers(rows.shape[1], rows))

    def _same(self, whole: Figures, *parts: Figures) -> bool:
        inputs = zip(self._runs.leaves, self._runs.dims.dims)
        dims = [dim for leaf, dim in inputs if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad]
        dims += [None] * (len(whole) - len(dims))
        found = [self._apart(dim, *figures) for dim, *figures in zip(dims, whole, *parts)]
        largest = max((norm for _, norm in found if norm < float("inf")), default=0.0)
        # (what is no number, of samples that overflow, says nothing)
        return not any(apart > self._tolerance * max(norm, self._least * largest) for apart, norm in found)

    def _apart(self, dim: int | None, whole: Tensor | None, *parts: Tensor | None) -> tuple[float, float]:
        """(the norm of the difference, the norm) of a gradient of all rows and those of the parts."""
        there = [self._wide(part) for part in parts if part is not None]
        if whole is None and not there:
            return 0.0, 0.0
        all_rows = self._torch.zeros_like(there[0]) if whole is None else self._wide(whole)
        total: Any = self._torch.zeros_like(all_rows)
        if there:
            total = sum(there) if dim is None else self._torch.cat(there, dim)
        return float((all_rows - total).norm()), max(float(all_rows.norm()), float(total.norm()))

    def _wide(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._torch.promote_types(tensor.dtype, self._torch.float32))
