"""How a module is cut, for inputs of one kind."""

from __future__ import annotations

import contextlib
import functools
import operator

from ..watch.rng_state import cuda_devices
from .attributes import Attributes
from .autocast import AutocastState
from .buffers import Buffers, compiled
from .cached_weights import CachedWeights
from .equivalence import EquivalenceCheck
from .fsdp import ShardedWeights
from .hook_variables import hook_variables
from .micro_batch_check import MicroBatchCheck, is_due, most_looked_at
from .outputs import Concatenated, Shared, WeightedSum
from .pytree import has_packed, tree_with
from .redraws import no_cudnn
from .reduction_choice import ReductionChoice
from .reductions import disagreement
from .refusal import LeavesOnWeights, Uncuttable, Unseen
from .sample_runs import SampleRuns
from .sandbox import Sandbox
from .trimming import Trimming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ContextManager, Generator, Iterable, NoReturn, Sequence

    from ..types import Call, Leaves, MaybeTensors, Module, Tensor, Torch, Tree
    from ..watch.rng_state import RngState
    from .batch_dims import BatchDims
    from .cut_context import CutContext
    from .outputs import Join
    from .padding import Padding
    from .ranks import OneRank
    from .reductions import Reductions
    from .row_group import RowGroup
    from .written_weights import Weights

#: Calls in which it is looked at whether a micro-batch writes to the weights: an encoder that follows another may begin as its copy, and move only
#: once that has learned. And backward passes in which it is what they leave on the weights.
FIRST = 3


class Plan:
    """`lengths`: possible lengths of a list with one entry per sample; `leaves`: the call's inputs. Raises Uncuttable."""

    def __init__(
        self,
        torch: Torch,
        module: Module,
        context: CutContext,
        lengths: tuple[int, ...],
        leaves: Leaves,
        ranks: OneRank,
    ) -> None:
        self._torch = torch
        self.module = module
        self._context = context
        self.modules: list[Module] = list(module.modules())
        self._ranks = ranks
        #: None: the weights are not sharded between ranks.
        self._sharded = ShardedWeights(torch, module) if ranks.together else None
        learns: list[Tensor] = [parameter for parameter in module.parameters() if parameter.requires_grad]
        tensors: list[Tensor] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.devices = cuda_devices(torch, learns + tensors)
        self._never_early = self._sharded is not None or any(parameter.dtype == torch.float16 for parameter in learns)
        #: Parameters whose gradients the call returns to autograd.
        self.parameters = learns if self._sharded is None else [self._sharded.anchor]
        self._learns = learns
        self.buffers = Buffers(torch, module)
        self.settings = context.settings.of(module)
        self._calls = self._backward_passes = 0
        #: As it was before the latest micro-batch; None: none has run.
        self.random: RngState | None = None
        self.lengths = lengths
        #: For each leaf of the output how it joins, and whether it requires gradients.
        self.joins: Sequence[Join] = ()
        self.differentiable: Sequence[bool] = ()
        self.reentrant = False
        self._most_looked_at, self._coarse = 0, False
        #: Neither hooks nor other ranks observe the parameters' gradients: they may be summed in `.grad` directly.
        self._unobserved = not context.exchanges and not _hooked(self.parameters)
        #: The number of the loss, if the module makes it and the script differentiates nothing else; else None.
        self._loss: int | None = None
        #: What it draws can be drawn again only without cuDNN.
        self._without_cudnn = False
        #: Micro-batches of equal size: batch statistics need samples, and each other size would be compiled anew.
        norm = torch.nn.modules.batchnorm._NormBase
        self.compiled = any(map(compiled, self.modules))
        self.even = not self.keeps_last() or self.compiled or any(isinstance(each, norm) for each in self.modules)
        self.trimming = Trimming(torch, lambda reason: context.warn("untrimmed", reason))
        # Without the compiled wrapper: nothing is compiled anew for two samples.
        self._not_compiled = getattr(module, "_orig_mod", module)

    def run(self, inputs: dict[int | str, Any], lazily: bool) -> Tree:
        """Calls the module without cutting. `inputs`: positional ones by number, the others by name. `lazily`: logits may be left out."""
        with self._lazily(lazily), no_cudnn(self._torch, self._without_cudnn):
            return self._run(self.module, inputs)

    def _lazily(self, allowed: bool) -> ContextManager[None]:
        """Whether logits inside need not be computed, even without gradients."""
        heads = self._context.heads
        return contextlib.nullcontext() if heads is None else heads.within_cut(allowed)

    def not_computed(self, leaf: Any) -> tuple[Tensor, Call] | None:
        """Of logits that are not computed: (what they are made of, what makes logits of that); None: of any other output."""
        return None if self._context.heads is None else self._context.heads.made_of(leaf)

    def _run(self, module: Module, inputs: dict[int | str, Any]) -> Tree:
        args = [value for name, value in inputs.items() if isinstance(name, int)]
        kwargs = {name: value for name, value in inputs.items() if not isinstance(name, int)}
        return self._context.calls.uncut(module, args, kwargs)

    def refuse(self, reason: Uncuttable) -> NoReturn:
        """Ends the job: what has run already cannot be run whole any more."""
        self._context.refuse(self.module, reason)

    def has_its_weights(self) -> bool:
        """Whether the module has the weights that it was looked at with (those of a sharded one are replaced all the time)."""
        if self._sharded is not None:
            return True
        present = [weight for weight in self.module.parameters() if weight.requires_grad]
        return len(present) == len(self._learns) and all(map(operator.is_, present, self._learns))

    def like(self, other: Plan) -> bool:
        """Whether what was seen now is what the other plan, which may have been decided further since, was made with."""
        return (
            (list(self.differentiable), self.reentrant) == (list(other.differentiable), other.reentrant)
            and len(self.joins) == len(other.joins)
            and all(type(one) is type(two) and _no_less(one, two) for one, two in zip(self.joins, other.joins))
        )

    def follow(self, other: Plan) -> None:
        """Takes the place of the other plan, after a change of the module's settings: what the script reads is known."""
        self.trimming.follow(other.trimming)

    def is_new(self) -> bool:
        """Whether this is one of its first calls."""
        self._calls += 1
        return self._calls <= FIRST

    @property
    def was_cut(self) -> bool:
        """Whether a call was cut by it."""
        return self._calls > 0

    def weights(self) -> Weights:
        """As they are now."""
        return self._sandbox().weights()

    def inner(self) -> ContextManager[None]:
        """In this thread no call inside is cut."""
        return self._context.calls.inner()

    def check(self, tree: Tree, leaves: Leaves, dims: BatchDims, most: int = 0) -> None:
        """Runs the equivalence check, of losses and gradients with at most `most` samples at a time. Raises Uncuttable."""
        check = self._equivalence(tree, leaves, dims)
        # (modules that communicate would wait for ranks that have nothing to cut)
        self._without_cudnn = self.keeps_last() and check.redraws().without_cudnn(self.modules)
        self.joins, self.differentiable, self.reentrant = check.found(most)
        self._most_looked_at, self._coarse = most_looked_at(check.numbers), check.coarse
        if self._torch.is_grad_enabled() and self._runs_backward_alone():
            check.check_gradients(most, self._gradients_aside)
        if self._without_cudnn:
            self._context.warn("cudnn")

    def _runs_backward_alone(self) -> bool:
        """Whether passes with gradients wait for no other rank, exchange nothing, have nothing compiled for a few samples, and hold no more
        than the training's do: an optimizer that steps in the backward pass never has all gradients at once."""
        exchanges = self._ranks.together or (self.reentrant and self._context.exchanges)
        steps = any(getattr(each, "_post_accumulate_grad_hooks", None) for each in self._learns)
        alone = self.keeps_last() and not exchanges and not steps
        return alone and not any(map(compiled, self._not_compiled.modules()))

    def _gradients_aside(self, outputs: list[Tensor], inputs: list[Tensor], given: list[Tensor]) -> MaybeTensors:
        """autograd.grad(), for reentrant checkpointing, too, which can do without hooks only by backward()."""
        with AutocastState(self._torch).disabled(), self.in_backward():
            if not self.reentrant:
                return self._torch.autograd.grad(outputs, inputs, given, allow_unused=True)
            before = [each.grad for each in inputs]
            try:
                for each in inputs:
                    each.grad = None
                self._context.backward(outputs, given)
                return tuple(each.grad for each in inputs)
            finally:
                for each, gradient in zip(inputs, before):
                    each.grad = gradient

    def flattens(self) -> bool:
        """Whether an output has several rows for each sample."""
        return any(isinstance(join, Concatenated) and join.rows(1) > 1 for join in self.joins)

    def look_again(self, tree: Tree, leaves: Leaves, dims: BatchDims, rows: Sequence[int]) -> None:
        """Before a cut call: now and then looks at one of its micro-batches, the samples `rows`. Raises Uncuttable."""
        if not is_due(self._calls + 1) or self._ranks.together or not self.keeps_last():
            return
        runs = self._runs(tree, leaves, dims)
        check = MicroBatchCheck(self._torch, runs, self.joins, self.differentiable, self._coarse)
        try:
            check.require_same(list(rows), self._most_looked_at)
        except Uncuttable as reason:
            if self.was_cut:
                reason.args = ("%s, which it did not at first" % reason,)
            raise
        finally:
            if self.devices:
                # Blocks of other sizes than training's, which it would find no use for.
                self._torch.cuda.empty_cache()

    def tell_kept(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> None:
        """Before the first cut call."""
        if self._sharded is None and not self._ranks.together and not compiled(self._not_compiled):
            self._tell(self._equivalence(tree, leaves, dims).keeps())

    def _tell(self, kept: list[str]) -> None:
        if kept:
            self._context.warn("kept", ", ".join(kept[:3]))

    def check_untouched(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> None:
        """Raises Uncuttable if micro-batches would draw other random numbers, or leave other buffers or statistics than the whole batch."""
        norm = self._torch.nn.modules.batchnorm._NormBase
        if any(isinstance(each, norm) and each.training for each in self.modules):
            raise Uncuttable("it has batch normalisation")
        self._equivalence(tree, leaves, dims).check_untouched()

    def compares_samples(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> bool:
        """Whether the module makes a loss of its own that compares the samples. Raises Uncuttable."""
        return self._equivalence(tree, leaves, dims).compares_samples()

    def settle(
        self, tree: Tree, leaves: Leaves, dims: BatchDims, reductions: Reductions, parts: Sequence[RowGroup]
    ) -> None:
        """Decides between reductions of an output that all held so far, and now differ. Raises Unreduced."""
        rows = [part.rows for part in parts]
        differ = [
            index
            for index, join in enumerate(self.joins)
            if isinstance(join, WeightedSum) and not isinstance(join, Shared) and _differ(reductions, join.names, rows)
        ]
        if not self._ranks.any(bool(differ)):
            return
        for index, join in enumerate(self.joins):
            if self._ranks.any(index in differ) and isinstance(join, WeightedSum):
                choice = ReductionChoice(self._torch, self._runs(tree, leaves, dims), index, rows)
                join.names = choice.among(join.names)

    def shortened(self, padding: Padding, tree: Tree, leaves: Leaves, dims: BatchDims) -> dict[int, int] | None:
        """By number of each output that is shorter without padding: its dimension. None: padding cannot be left out."""
        if self.even or self._ranks.together or any(getattr(leaf, "requires_grad", False) for leaf in leaves):
            return None
        kinds = (self._torch.float32, self._torch.float64)
        fine = all(parameter.dtype in kinds for parameter in self._learns)
        run = functools.partial(self._run_leaves, tree)
        return self.trimming.outputs(padding, leaves, dims, run, self._sandbox(), fine)

    def _run_leaves(self, tree: Tree, leaves: Leaves) -> Tree:
        with self._lazily(False), no_cudnn(self._torch, self._without_cudnn), CachedWeights(self._torch).entered():
            return self._run(self._not_compiled, tree_with(self._torch, tree, leaves, self.lengths))

    def _equivalence(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> EquivalenceCheck:
        return EquivalenceCheck(self._torch, self._runs(tree, leaves, dims))

    def _sandbox(self) -> Sandbox:
        return Sandbox(self._torch, self.module, self.devices, self._sharded is not None)

    def _runs(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> SampleRuns:
        if has_packed(self._torch, tree):
            raise Unseen(
                "it is given a PackedSequence, which has no row for each sample; packed in its own forward pass, sequences are cut "
                "with their samples"
            )
        run = functools.partial(self._run_leaves, tree)
        return SampleRuns(self._torch, run, leaves, dims, self._sandbox(), self._learns, self._ranks, self._sharded)

    def accumulates_by_backward(self) -> bool:
        """Whether micro-batches' gradients are summed by backward(), else by autograd.grad(). Raises Uncuttable."""
        exchanges = self._context.exchanges
        if self.reentrant and not self._unobserved and exchanges:
            raise Uncuttable(
                "checkpointing of the reentrant kind in it exchanges gradients between ranks; use_reentrant=False does not"
            )
        if self._sharded is not None:
            return True
        return self.reentrant or (self._unobserved and not _hooked(self.parameters))

    def adds_to_grad(self) -> bool:
        """Whether micro-batches' gradients may be added to the present `.grad` directly."""
        return self._sharded is not None or (self._context.plain() and self._unobserved)

    def keeps_last(self) -> bool:
        """Whether the last micro-batch keeps its graph. Not if its modules communicate: all ranks must make the same forward
        passes, even if one calls the model once more before its backward pass."""
        return not self._context.exchanges or not any(_communicates(module) for module in self.modules)

    # -- weights that are sharded between ranks

    def synchronized(self, last: bool) -> ContextManager[None]:
        """A backward pass inside exchanges gradients between ranks only if it is the call's last one."""
        return contextlib.nullcontext() if self._sharded is None or last else self._sharded.no_sync()

    def forward_in_backward(self) -> ContextManager[None]:
        """For forward passes inside a backward pass."""
        return contextlib.nullcontext() if self._sharded is None else self._sharded.resharded_after_forward()

    def all_take_part(self) -> bool:
        """Whether a micro-batch of weight 0 runs backward all the same, as other ranks may wait for it."""
        return self._sharded is not None

    def differentiates_again(self) -> None:
        """Gradients are to have gradients."""
        self._loss = None
        if self._sharded is not None:
            raise RuntimeError("weights that are sharded between ranks (FSDP) have no gradients of gradients")

    # -- gradients made in the forward pass

    def early_loss(self, autocast: AutocastState) -> int | None:
        """The number of the loss whose gradients a call may make in its forward pass; None: it may not."""
        loss, self._loss = self._loss, None  # until a backward pass asks for its gradient again
        if autocast.fp16:
            self._context.warn("fp16")
        if self._never_early or autocast.fp16 or self.reentrant or not self.accumulates_by_backward():
            return None
        return loss

    def asked_for(self, wanted: Sequence[Tensor | None]) -> int | None:
        """A backward pass is given these gradients of outputs. Returns the number of the loss if only that has one."""
        given = [(index, gradient) for index, gradient in enumerate(wanted) if gradient is not None]
        self._loss = None
        if len(given) == 1:
            index, gradient = given[0]
            if isinstance(self.joins[index], WeightedSum) and gradient.numel() == 1:
                self._loss = index
        return self._loss

    def never_early(self) -> None:
        self._never_early = True

    # -- backward passes of micro-batches

    def in_backward(self) -> ContextManager[None]:
        """For a micro-batch's backward pass."""
        return self._context.calls.backward_of_micro_batch()

    def backward(self, outputs: list[Tensor], gradients: list[Tensor]) -> None:
        """torch's own backward()."""
        with self._looked_at():
            self._context.backward(outputs, gradients)

    def gradients(self, outputs: list[Tensor], inputs: list[Tensor], gradients: list[Tensor]) -> MaybeTensors:
        with self._looked_at():
            return self._torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)

    @contextlib.contextmanager
    def _looked_at(self) -> Generator[None, None, None]:
        """For a micro-batch's backward pass: the first ones show what hooks on its modules leave on the weights."""
        self._backward_passes += 1
        looks = self._backward_passes <= FIRST and self._sharded is None
        attributes = Attributes(self._torch, self._learns) if looks else None
        variables = Attributes(self._torch, [], hook_variables(self._torch, self.modules)) if looks else None
        with self.in_backward():
            yield
        if variables is not None:
            self._tell(variables.changed())
        left = attributes.changed() if attributes is not None else []
        if left:
            what = "its backward pass leaves something on its weights (%s), and would leave that of a micro-batch"
            self.refuse(LeavesOnWeights(what % ", ".join(left[:3])))

    def drew(self) -> None:
        """A micro-batch's forward pass has drawn random numbers."""
        self._context.warn("random_draws")

    def second_micro_batch(self) -> None:
        """The second micro-batch has run."""
        if self.buffers.waiting and self.buffers.differ():
            self._context.warn("buffers")


def _differ(reductions: Reductions, names: list[str], rows: Sequence[Sequence[int]]) -> bool:
    return len(names) > 1 and disagreement(reductions.named(names), rows) is not None


def _no_less(join: Join, other: Join) -> bool:
    if isinstance(join, WeightedSum) and isinstance(other, WeightedSum):
        return set(join.names) >= set(other.names)
    return True


def _communicates(module: Module) -> bool:
    return type(module).__name__ in ("SyncBatchNorm", "DistributedDataParallel")


def _hooked(parameters: Iterable[Tensor]) -> bool:
    """Whether any of the parameters has a hook on its gradient."""
    return any(each._backward_hooks or getattr(each, "_post_accumulate_grad_hooks", None) for each in parameters)
