"""One call of a module, run as several: forward without activations, then each micro-batch again in the backward pass. The
last micro-batch keeps its activations, as the backward pass needs them first."""

from __future__ import annotations

import contextlib

from ..watch.rng_state import RngState
from .autocast import AutocastState
from .cached_weights import CachedWeights
from .comparison import COARSE, FINE
from .gradients import Gradients, HooksAside, scaled
from .nearness import near
from .outputs import Concatenated, Constant, Outputs, Shared, WeightedSum
from .pytree import tree_leaves, tree_with
from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generator, Iterator, Sequence

    from ..types import Call, Leaves, MaybeTensors, Tensor, Torch, Tree
    from .batch_dims import BatchDims
    from .buffers import Snapshot
    from .padding import Padding
    from .plan import Plan
    from .reductions import Reductions
    from .row_group import RowGroup
    from .written_weights import Weights

#: Of sizes below this rounding may be a large part, as of a loss of next to nothing.
SMALL = 1e-2


class CutCall:
    """`tree`: the positional and keyword arguments, with their `leaves`; `reductions`: weights for outputs without a row per
    sample; `parts`: the micro-batches; `most`: run at most this many of them; None: all. `padding`: what is left out of them;
    `shortened`: by number of each output that is shorter then, that dimension."""

    def __init__(
        self,
        torch: Torch,
        plan: Plan,
        tree: Tree,
        leaves: Leaves,
        dims: BatchDims,
        reductions: Reductions,
        parts: list[RowGroup],
        most: int | None,
        padding: Padding | None = None,
        shortened: dict[int, int] | None = None,
    ) -> None:
        self._torch = torch
        self.plan = plan
        self._tree = tree
        self._leaves = leaves
        self.dims = dims
        self._parts = parts
        self._padding = padding
        self._shortened = shortened or {}
        self._width = 0 if padding is None else padding.width
        #: Inputs that are shorter without padding.
        self._trimmed = () if padding is None else tuple(padding.filled)
        #: Indices of the micro-batches that run: the last is the largest.
        self._ran = range(max(0, len(parts) - most) if most else 0, len(parts))
        self._trains = most is None
        self._random: dict[int, RngState] = {}
        #: In a call that is looked at: by index of each micro-batch that is run again the sizes (norms) of what it returned.
        self._sizes: dict[int, list[Tensor]] = {}
        self._looks = False
        #: Of the last micro-batch: (its inputs that require gradients, by number; its output's leaves, with their graph).
        self._kept: tuple[dict[int, Tensor], Leaves] | None = None
        #: (the number of the loss, gradients made in the forward pass for a gradient of 1 of that loss).
        self._early: tuple[int, MaybeTensors] | None = None
        #: Buffers that change, as they were before the first micro-batch.
        self._buffers: Snapshot | None = None
        #: The output's structure, without its leaves; None: a single leaf, or unknown yet.
        self._structure: Tree = None
        #: By number of each output whose logits are not computed: what makes them of what is joined in their place.
        self._heads: dict[int, Call] = {}
        self._autocast = AutocastState(torch)
        self._cached_weights = CachedWeights(torch)
        self.weights = {
            index: [0.0] * (len(parts) - 1) + [1.0]
            if isinstance(join, Shared)
            else reductions.first(join.names).weights([part.rows for part in parts])
            for index, join in enumerate(plan.joins)
            if isinstance(join, WeightedSum)
        }
        tensors: list[Tensor] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        #: The numbers of the leaves that require gradients.
        self.numbers = [number for number, leaf in enumerate(leaves) if torch.is_tensor(leaf) and leaf.requires_grad]
        self.inputs: list[Tensor] = [leaves[number] for number in self.numbers]
        self._versions = [
            (tensor, tensor._version) for tensor in tensors + plan.parameters if not tensor.is_inference()
        ]
        self._modes = [(module, module.training) for module in plan.modules]

    def _run(self, index: int, inputs: dict[int, Tensor] | None = None) -> Tree:
        """Runs the module on one micro-batch. `inputs`: tensors in place of the leaves that require gradients, by number."""
        leaves = self.dims.parts(self._leaves, self._parts[index], self._trimmed)
        for number, tensor in (inputs or {}).items():
            leaves[number] = tensor
        # Who reads the padding of an output is seen by its values: they have to be there.
        lazily = self._padding is None
        with self._cached_weights.entered():
            return self.plan.run(tree_with(self._torch, self._tree, leaves, self.plan.lengths), lazily)

    # -- forward

    def forward(self) -> Leaves:
        """Runs the call; returns the leaves of its whole output."""
        self._autocast = AutocastState(self._torch)
        outputs = Outputs(
            self._torch, self.plan.joins, self.dims, self._parts, self.weights, self._shortened, self._width
        )
        with self._autocast.entered():
            loss = self.plan.early_loss(self._autocast)
            if loss is None:
                self._forward_alone(outputs)
            else:
                self._forward_and_backward(outputs, loss)
        outputs.check()
        self._cached_weights.require_same(self.plan.modules, self.plan.buffers.others)
        changed = self._changed()
        if changed is not None:
            raise Uncuttable("its forward pass writes to an input or a weight of shape %s" % changed)
        outputs.stand_in(self._parts[: self._ran[0]], self._parts[self._ran[0]])
        self.plan.settings.end()
        return outputs.leaves

    def _forward_alone(self, outputs: Outputs) -> None:
        """Keeps activations of the last micro-batch only."""
        for index in self._in_turn():
            if index and index == self._ran[-1] and self.plan.keeps_last() and any(self.plan.differentiable):
                self._autocast.clear_cache()
                self._kept = self._with_graph(index)
                leaves = self._detached(self._kept[1])
            else:
                leaves = self._leaves_of(index, self._run(index))
                if self._looks:
                    self._sizes[index] = self._sizes_of(leaves)
            outputs.add(leaves, index)
            del leaves
        if self._kept is None:
            self._autocast.clear_cache()

    def _forward_and_backward(self, outputs: Outputs, loss: int) -> None:
        """Runs each micro-batch's backward pass right after its forward pass: of a loss that the module makes itself only a
        factor on the gradient is still unknown."""
        self._autocast.clear_cache()
        wanted: list[Tensor | None] = [None] * len(self.plan.joins)
        with Gradients(self._torch, self.plan, self.inputs) as gradients:
            for index in self._in_turn():
                inputs, leaves = self._with_graph(index)
                outputs.add(self._detached(leaves), index)
                wanted[loss] = self._torch.ones_like(leaves[loss])
                with self._autocast.disabled():
                    self._backward(index, leaves, inputs, wanted, gradients)
                del leaves, inputs
            self._early = loss, gradients.totals()

    def _in_turn(self) -> Iterator[int]:
        """Indices of the micro-batches to run; sets and notes the random state and buffers of each."""
        buffers = self.plan.buffers
        self._buffers = buffers.snapshot() if buffers.known else None
        weights: Weights | None = None
        looks = self._looks = self.plan.is_looked_at()
        for index in self._ran:
            if index != self._ran[0] and self._buffers is not None:
                self._buffers.restore()
            self.plan.random = self._random[index] = RngState(self._torch, self.plan.devices, self.plan.random)
            if self._trains and index == self._ran[0] + 1 and self._random[index] != self._random[index - 1]:
                self.plan.drew()
            yield index
            if weights is not None:
                weights.require_same()
            weights = self.plan.weights() if looks and index == self._ran[0] else None
            if not buffers.known:
                buffers.learn()
                self._buffers = buffers.before_first()
            elif buffers.waiting:
                self.plan.second_micro_batch()

    def _leaves_of(self, index: int, output: Tree) -> Leaves:
        """Of what a micro-batch returned."""
        leaves = tree_leaves(self._torch, output)
        if self._structure is None:
            # (each another one: what is the same object twice is a leaf once)
            self._structure = tree_with(self._torch, output, [object() for _ in leaves])
        for number, leaf in enumerate(leaves):
            found = self.plan.not_computed(leaf)
            if found is not None:
                leaves[number], self._heads[number] = found
        if len(self._parts[index]) == 1 and len(leaves) == len(self.plan.joins):
            return [
                join.with_row(leaf) if isinstance(join, Concatenated) else leaf
                for leaf, join in zip(leaves, self.plan.joins)
            ]
        return leaves

    def _with_graph(self, index: int) -> tuple[dict[int, Tensor], Leaves]:
        """Runs a micro-batch; returns (its inputs that require gradients, by number; its output's leaves)."""
        inputs = self._inputs(self._parts[index])
        with self._torch.enable_grad():
            return inputs, self._leaves_of(index, self._run(index, inputs))

    def _detached(self, leaves: Leaves) -> Leaves:
        return [leaf.detach() if isinstance(leaf, self._torch.Tensor) else leaf for leaf in leaves]

    def release(self) -> None:
        """Frees the kept activations for another call: the last micro-batch is recomputed, too."""
        self._kept = None
        if self._early is not None:
            # The gradients of one call only, however often a step calls models.
            self._early = None
            self.plan.never_early()

    def built(self, leaves: Leaves) -> Tree:
        """The output with the module's own structure."""
        for number, logits_of in self._heads.items():
            leaves[number] = logits_of(leaves[number])
        self._heads = {}
        if self._padding is not None:
            leaves = self.plan.trimming.watched(leaves, self._padding)
        output = tree_with(self._torch, self._structure, leaves)
        self._structure = None
        return output

    # -- backward

    def backward(self, wanted: Sequence[Tensor | None]) -> MaybeTensors:
        """Gradients of inputs and parameters, given those of the output's leaves (None: no gradient)."""
        self._check_weights()
        kept, self._kept = self._kept, None
        early, self._early = self._early, None
        loss = self.plan.asked_for(wanted)
        factor = None if loss is None else wanted[loss]
        if early is not None and early[0] == loss and factor is not None:
            return scaled(early[1], factor)
        del early, factor
        outside = AutocastState(self._torch)
        with self._as_in_forward(), Gradients(self._torch, self.plan, self.inputs) as gradients:
            again = list(self._ran)
            if kept is not None:
                inputs, leaves = kept
                index = again.pop()
                with self.plan.synchronized(last=not again):
                    self._backward(index, leaves, inputs, wanted, gradients)
                del inputs, leaves
            kept = None
            # Weights are cast once for all micro-batches.
            with self.plan.buffers.preserved(), self._autocast.entered():
                for index in again:
                    self._restore(index)
                    with self.plan.forward_in_backward():
                        inputs, leaves = self._with_graph(index)
                    self._require_same(index, leaves)
                    if self.plan.reentrant:
                        # Reentrant checkpoints cast without a graph first.
                        self._autocast.clear_cache()
                    with outside.entered(), self.plan.synchronized(last=index == again[-1]):
                        self._backward(index, leaves, inputs, wanted, gradients)
                    del leaves, inputs
            return gradients.totals()

    def _sizes_of(self, leaves: Leaves) -> list[Tensor]:
        return [leaf.detach().norm() for leaf, learns in zip(leaves, self.plan.differentiable) if learns]

    def _require_same(self, index: int, leaves: Leaves) -> None:
        """Ends the job if a micro-batch does not return again what it returned in the forward pass."""
        before = self._sizes.pop(index, None)
        if before is None:
            return
        half = (self._torch.float16, self._torch.bfloat16)
        if not all(
            near(self._torch, one + SMALL, other + SMALL, COARSE if one.dtype in half else FINE)
            for one, other in zip(before, self._sizes_of(leaves))
        ):
            self.plan.refuse(
                Uncuttable(
                    "run again in the backward pass, it does not return what it did in the forward pass: something that it depends on "
                    "(a setting of the model, an adapter, a temperature) was changed in between"
                )
            )

    def _restore(self, index: int) -> None:
        """Random state and buffers are as they were when the micro-batch ran."""
        if self._buffers is not None:
            self._buffers.restore()
        self._random[index].restore()

    def _backward(
        self,
        index: int,
        leaves: Leaves,
        inputs: dict[int, Tensor],
        wanted: Sequence[Tensor | None],
        gradients: Gradients,
    ) -> None:
        """The backward pass of one micro-batch."""
        group = self._parts[index]
        outputs: list[Tensor] = []
        of_outputs: list[Tensor] = []
        for number, (leaf, join) in enumerate(zip(leaves, self.plan.joins)):
            gradient = wanted[number]
            if gradient is None or isinstance(join, Constant) or not leaf.requires_grad:
                continue
            if isinstance(join, Concatenated):
                gradient = self.given(gradient, number, join, group)
            elif self.weights[number][index] == 0.0 and not self.plan.all_take_part():
                continue
            else:
                gradient = gradient * self.weights[number][index]
            outputs.append(leaf)
            of_outputs.append(gradient.to(leaf.dtype))
        if outputs:
            dims = [self.dims.dims[number] for number in inputs]
            gradients.add(outputs, of_outputs, list(inputs.values()), dims, group)

    def given(self, gradient: Tensor, number: int, join: Concatenated, group: RowGroup) -> Tensor:
        """The micro-batch's rows of the gradient of an output."""
        gradient = join.part(gradient, group)
        kept = self.unpadded(gradient, number, group)
        if kept is not gradient and gradient.count_nonzero() != kept.count_nonzero():
            raise RuntimeError(
                "the loss depends on what the model returns for padding, which oomtune leaves out; without "
                "--micro-batch-tokens it does not"
            )
        return kept

    def unpadded(self, tensor: Tensor, number: int, group: RowGroup) -> Tensor:
        """Of a tensor as wide as an output what the micro-batch has, where padding is left out."""
        if number not in self._shortened or group.window is None:
            return tensor
        return tensor.narrow(self._shortened[number], *group.window)

    def _inputs(self, group: RowGroup) -> dict[int, Tensor]:
        """By number, for each leaf that requires gradients: its rows, detached, as the start of a graph."""
        return {
            number: self.dims.part(self._leaves[number], self.dims.dims[number], group).detach().requires_grad_()
            for number in self.numbers
        }

    # -- gradients that are differentiated again

    def again(self) -> Generator[tuple[int, RowGroup], None, None]:
        """(the number, the samples) of each micro-batch, that it may be run again as it was in the forward pass."""
        self._check_weights()
        self.plan.differentiates_again()
        self._kept = self._early = None
        with self._as_in_forward(), self.plan.buffers.preserved(), HooksAside(self.plan.parameters):
            for index in self._ran:
                self._restore(index)
                with self.plan.in_backward():
                    yield index, self._parts[index]

    def leaves_of(self, index: int, inputs: dict[int, Tensor]) -> Leaves:
        """A micro-batch's output, with its graph. `inputs`: by number, in place of the leaves that require gradients."""
        with self._autocast.entered():
            return self._leaves_of(index, self._run(index, inputs))

    def _changed(self) -> list[int] | None:
        """The shape of an input or a weight that was written to since the call began; None: none was."""
        return next((list(tensor.shape) for tensor, version in self._versions if tensor._version != version), None)

    def _check_weights(self) -> None:
        """The forward pass can be run again as it was."""
        if not self.plan.has_its_weights():
            self.plan.refuse(
                Uncuttable("its weights are given to it for one call only, as torch.func.functional_call does")
            )
        changed = self._changed()
        if changed is not None:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
                "of shape %s was changed between the model's forward pass and its backward pass, and oomtune runs the "
                "forward pass again in micro-batches; --cut loader does not" % (changed,)
            )

    @contextlib.contextmanager
    def _as_in_forward(self) -> Generator[None, None, None]:
        """Inside, modules have their modes of the forward pass; restores modes and random state afterwards."""
        self.plan.settings.begin()
        random = RngState(self._torch, self.plan.devices)
        changed = [(module, training) for module, training in self._modes if module.training != training]
        for module, training in changed:
            module.training = training
        try:
            with self.plan.inner():
                yield
        finally:
            for module, training in changed:
                module.training = not training
            random.restore()
            self.plan.settings.end()
