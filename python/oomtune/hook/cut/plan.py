"""How a module is cut, for inputs of one kind."""

from __future__ import annotations

import contextlib

from ..watch.rng_state import cuda_devices
from .attributes import Attributes
from .autocast import AutocastState
from .buffers import Buffers, compiled, learning_buffers
from .fsdp import ShardedWeights
from .hook_variables import hook_variables
from .lazy_layers import is_made
from .micro_batch_check import is_due
from .outputs import Concatenated, WeightedSum
from .redraws import no_cudnn
from .refusal import LeavesOnWeights, Uncuttable
from .sandbox import Sandbox
from .trimming import Trimming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ContextManager, Generator, Iterable, NoReturn, Sequence

    from ..types import Call, Leaves, MaybeTensors, Module, Tensor, Torch, Tree
    from ..watch.rng_state import RngState
    from .cut_context import CutContext
    from .outputs import Join
    from .ranks import OneRank
    from .written_weights import Weights

#: Calls in each of which it is looked at whether a micro-batch writes to the weights, and returns the same when it runs again: an encoder that follows
#: another may begin as its copy, and move only once that has learned. And backward passes in which it is what they leave on the weights.
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
        self.context = context
        self.modules: list[Module] = list(module.modules())
        self.ranks = ranks
        #: None: the weights are not sharded between ranks.
        self.sharded = ShardedWeights(torch, module) if ranks.together else None
        learns = self._learning()
        tensors: list[Tensor] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.devices = cuda_devices(torch, learns + tensors)
        self._never_early = self.sharded is not None or any(parameter.dtype == torch.float16 for parameter in learns)
        #: Parameters whose gradients the call returns to autograd, and buffers that get some.
        self.parameters = learns if self.sharded is None else [self.sharded.anchor]
        self.learns = learns
        self.buffers = Buffers(torch, module)
        self.settings = context.settings.of(module)
        #: Calls that were cut by it, and backward passes of their micro-batches.
        self.calls = self._backward_passes = 0
        #: As it was before the latest micro-batch; None: none has run.
        self.random: RngState | None = None
        self.lengths = lengths
        #: What was found as a call was looked at. For each leaf of the output how it joins, and whether it requires gradients.
        self.joins: Sequence[Join] = ()
        self.differentiable: Sequence[bool] = ()
        self.reentrant = False
        #: Samples of a micro-batch that are looked at at most, and whether its numbers are coarser than single precision.
        self.most_looked_at, self.coarse = 0, False
        #: Neither hooks nor other ranks observe the parameters' gradients: they may be summed in `.grad` directly.
        self._unobserved = not context.exchanges and not _hooked(self.parameters)
        #: The number of the loss, if the module makes it and the script differentiates nothing else; else None.
        self._loss: int | None = None
        #: What it draws can be drawn again only without cuDNN.
        self.without_cudnn = False
        #: Micro-batches of equal size: batch statistics need samples, and each other size would be compiled anew.
        norm = torch.nn.modules.batchnorm._NormBase
        self.compiled = any(map(compiled, self.modules))
        self.even = not self.keeps_last() or self.compiled or any(isinstance(each, norm) for each in self.modules)
        self.trimming = Trimming(torch, lambda reason: context.warn("untrimmed", reason))
        # Without the compiled wrapper: nothing is compiled anew for two samples.
        self.not_compiled = getattr(module, "_orig_mod", module)

    def run(self, inputs: dict[int | str, Any], lazily: bool) -> Tree:
        """Calls the module without cutting. `inputs`: positional ones by number, the others by name. `lazily`: logits may be left out."""
        with self._lazily(lazily), no_cudnn(self._torch, self.without_cudnn):
            return self._run(self.module, inputs)

    def run_aside(self, inputs: dict[int | str, Any]) -> Tree:
        """The same, to look at what it returns, logits included."""
        with self._lazily(False), no_cudnn(self._torch, self.without_cudnn):
            return self._run(self.not_compiled, inputs)

    def _lazily(self, allowed: bool) -> ContextManager[None]:
        """Whether logits inside need not be computed, even without gradients."""
        heads = self.context.heads
        return contextlib.nullcontext() if heads is None else heads.within_cut(allowed)

    def not_computed(self, leaf: Any) -> tuple[Tensor, Call] | None:
        """Of logits that are not computed: (what they are made of, what makes logits of that); None: of any other output."""
        return None if self.context.heads is None else self.context.heads.made_of(leaf)

    def _run(self, module: Module, inputs: dict[int | str, Any]) -> Tree:
        args = [value for name, value in inputs.items() if isinstance(name, int)]
        kwargs = {name: value for name, value in inputs.items() if not isinstance(name, int)}
        return self.context.calls.uncut(module, args, kwargs)

    def refuse(self, reason: Uncuttable) -> NoReturn:
        """Ends the job: what has run already cannot be run whole any more."""
        self.context.refuse(self.module, reason)

    def has_its_weights(self) -> bool:
        """Whether the module has the weights that it was looked at with (those of a sharded one are replaced all the time)."""
        if self.sharded is not None:
            return True
        return set(map(id, self._learning())) == set(map(id, self.learns))

    def _learning(self) -> list[Tensor]:
        parameters = [each for each in self.module.parameters() if each.requires_grad and is_made(each)]
        return parameters + learning_buffers(self.modules)

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

    def is_looked_at(self) -> bool:
        """Whether its next call is one of the first, or one of those by which it is looked whether that has changed since."""
        self.calls += 1
        return self.calls <= FIRST or is_due(self.calls)

    @property
    def was_cut(self) -> bool:
        """Whether a call was cut by it."""
        return self.calls > 0

    def weights(self) -> Weights:
        """As they are now."""
        return self.sandbox().weights()

    def inner(self) -> ContextManager[None]:
        """In this thread no call inside is cut."""
        return self.context.calls.inner()

    def flattens(self) -> bool:
        """Whether an output has several rows for each sample."""
        return any(isinstance(join, Concatenated) and join.rows(1) > 1 for join in self.joins)

    def tell_kept(self, kept: list[str]) -> None:
        if kept:
            self.context.warn("kept", ", ".join(kept[:3]))

    def sandbox(self) -> Sandbox:
        return Sandbox(self._torch, self.module, self.devices, self.sharded is not None)

    def accumulates_by_backward(self) -> bool:
        """Whether micro-batches' gradients are summed by backward(), else by autograd.grad(). Raises Uncuttable."""
        exchanges = self.context.exchanges
        if self.reentrant and not self._unobserved and exchanges:
            raise Uncuttable(
                "checkpointing of the reentrant kind in it exchanges gradients between ranks; use_reentrant=False does not"
            )
        if self.sharded is not None:
            return True
        return self.reentrant or (self._unobserved and not _hooked(self.parameters))

    def adds_to_grad(self) -> bool:
        """Whether micro-batches' gradients may be added to the present `.grad` directly."""
        return self.sharded is not None or (self.context.plain() and self._unobserved)

    def keeps_last(self) -> bool:
        """Whether the last micro-batch keeps its graph. Not if its modules communicate: all ranks must make the same forward
        passes, even if one calls the model once more before its backward pass."""
        return not self.context.exchanges or not any(_communicates(module) for module in self.modules)

    # -- weights that are sharded between ranks

    def synchronized(self, last: bool) -> ContextManager[None]:
        """A backward pass inside exchanges gradients between ranks only if it is the call's last one."""
        return contextlib.nullcontext() if self.sharded is None or last else self.sharded.no_sync()

    def forward_in_backward(self) -> ContextManager[None]:
        """For forward passes inside a backward pass."""
        return contextlib.nullcontext() if self.sharded is None else self.sharded.resharded_after_forward()

    def all_take_part(self) -> bool:
        """Whether a micro-batch of weight 0 runs backward all the same, as other ranks may wait for it."""
        return self.sharded is not None

    def differentiates_again(self) -> None:
        """Gradients are to have gradients."""
        self._loss = None
        if self.sharded is not None:
            raise RuntimeError("weights that are sharded between ranks (FSDP) have no gradients of gradients")

    # -- gradients made in the forward pass

    def early_loss(self, autocast: AutocastState) -> int | None:
        """The number of the loss whose gradients a call may make in its forward pass; None: it may not."""
        loss, self._loss = self._loss, None  # until a backward pass asks for its gradient again
        if autocast.fp16:
            self.context.warn("fp16")
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
        return self.context.calls.backward_of_micro_batch()

    def backward(self, outputs: list[Tensor], gradients: list[Tensor]) -> None:
        """torch's own backward()."""
        with self._looked_at():
            self.context.backward(outputs, gradients)

    def gradients(self, outputs: list[Tensor], inputs: list[Tensor], gradients: list[Tensor]) -> MaybeTensors:
        with self._looked_at():
            return self._torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)

    @contextlib.contextmanager
    def _looked_at(self) -> Generator[None, None, None]:
        """For a micro-batch's backward pass: the first ones show what hooks on its modules leave on the weights."""
        self._backward_passes += 1
        looks = self._backward_passes <= FIRST and self.sharded is None
        attributes = Attributes(self._torch, self.learns) if looks else None
        variables = Attributes(self._torch, [], hook_variables(self._torch, self.modules)) if looks else None
        with self.in_backward():
            yield
        if variables is not None:
            self.tell_kept(variables.changed())
        left = attributes.changed() if attributes is not None else []
        if left:
            what = "its backward pass leaves something on its weights (%s), and would leave that of a micro-batch"
            if any("grad_sample" in name for name in left):
                what += (
                    "; where Opacus keeps each sample's gradient there, its own BatchMemoryManager makes micro-batches"
                )
            self.refuse(LeavesOnWeights(what % ", ".join(left[:3])))

    def drew(self) -> None:
        """A micro-batch's forward pass has drawn random numbers."""
        self.context.warn("random_draws")

    def second_micro_batch(self) -> None:
        """The second micro-batch has run."""
        if self.buffers.waiting and self.buffers.differ():
            self.context.warn("buffers")


def _no_less(join: Join, other: Join) -> bool:
    if isinstance(join, WeightedSum) and isinstance(other, WeightedSum):
        return set(join.names) >= set(other.names)
    return True


def _communicates(module: Module) -> bool:
    return type(module).__name__ in ("SyncBatchNorm", "DistributedDataParallel")


def _hooked(parameters: Iterable[Tensor]) -> bool:
    """Whether any of the parameters has a hook on its gradient."""
    return any(each._backward_hooks or getattr(each, "_post_accumulate_grad_hooks", None) for each in parameters)
