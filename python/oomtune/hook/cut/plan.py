"""What is known of a module that is called in training, for inputs of one kind."""

from __future__ import annotations

import contextlib
import os

from .buffers import Buffers, compiled
from .equivalence import EquivalenceCheck
from .fsdp import ShardedWeights
from .outputs import WeightedSum
from .pytree import tree_with
from .random_state import cuda_devices
from .reductions import disagreement
from .refusal import Uncuttable
from .sandbox import Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Iterable, Sequence

    from ..types import Leaves, MaybeTensors, Module, Span, Tensor, Torch, Tree
    from .autocast import AutocastState
    from .batch_dims import BatchDims
    from .model_calls import ModelCalls
    from .outputs import Join
    from .ranks import OneRank
    from .reductions import Reductions

DIFFERENCES = {
    "buffers": "The model keeps values of its own (buffers) that its forward pass takes from the samples: they are those of micro-batches.",
    "fp16": "In fp16 the gradients of a micro-batch overflow later than those of the whole batch: the loss scaler may skip fewer steps.",
}


class Training:
    """What is the same for all modules of the process. `warn(code, message)` is told what differs; `plain()` says whether the
    backward pass that runs is a backward() of the script for all that learns."""

    def __init__(
        self, torch: Torch, calls: ModelCalls, warn: Callable[[str, str], None], plain: Callable[[], bool]
    ) -> None:
        self.calls = calls
        self.plain = plain
        self._warn = warn
        #: Codes of the differences that were warned of.
        self.warned: set[str] = set()
        #: Several ranks bring their gradients together.
        self.exchanges = int(os.environ.get("WORLD_SIZE") or 1) > 1
        #: torch's own, before anything watches it.
        self.backward: Callable[..., None] = torch.autograd.backward

    def warn(self, code: str) -> None:
        if code not in self.warned:
            self.warned.add(code)
            self._warn(code, DIFFERENCES[code])


class Plan:
    """`lengths`: those that a list with one entry a sample may have; `tensors`: the call's inputs. Raises Uncuttable."""

    def __init__(
        self,
        torch: Torch,
        module: Module,
        training: Training,
        lengths: tuple[int, ...],
        tensors: list[Tensor],
        ranks: OneRank,
    ) -> None:
        self._torch = torch
        self.module = module
        self._training = training
        self.modules: list[Module] = list(module.modules())
        self._ranks = ranks
        #: None: no weights are sharded between ranks.
        self._sharded = ShardedWeights(torch, module) if ranks.together else None
        learns: list[Tensor] = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.devices = cuda_devices(torch, learns + tensors)
        self._never_early = self._sharded is not None or any(parameter.dtype == torch.float16 for parameter in learns)
        #: Those whose gradients the call hands to autograd.
        self.parameters = learns if self._sharded is None else [self._sharded.anchor]
        self._learns = learns
        self.buffers = Buffers(torch, module)
        self.lengths = lengths
        #: For each leaf of the output how it is put together, and whether it carries gradients.
        self.joins: Sequence[Join] = ()
        self.differentiable: Sequence[bool] = ()
        self.reentrant = False
        #: Nobody else waits for gradients of the parameters: they add up where they always do, and lie there once only.
        self._unobserved = not training.exchanges and not _hooked(self.parameters)
        #: The one output that the script takes the gradient of, where that is a loss that the module makes itself.
        self._loss: int | None = None
        #: Micro-batches alike: statistics of very few samples differ more, and another size is compiled anew.
        norm = torch.nn.modules.batchnorm._NormBase
        self.even = not self.keeps_last() or any(isinstance(each, norm) or compiled(each) for each in self.modules)
        # What is compiled is not compiled anew for two samples.
        self._not_compiled = getattr(module, "_orig_mod", module)

    def run(self, inputs: dict[int | str, Any]) -> Tree:
        """Calls the module past the cut. `inputs`: by place and by name."""
        return self._run(self.module, inputs)

    def _run(self, module: Module, inputs: dict[int | str, Any]) -> Tree:
        args = [value for name, value in inputs.items() if isinstance(name, int)]
        kwargs = {name: value for name, value in inputs.items() if not isinstance(name, int)}
        return self._training.calls.uncut(module, args, kwargs)

    def inner(self) -> ContextManager[None]:
        """In this thread no call of a module inside is cut."""
        return self._training.calls.inner()

    def check(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> None:
        """Raises Uncuttable where the module cannot be shown to give the same."""
        self.joins, self.differentiable, self.reentrant = self._equivalence(tree, leaves, dims).found()

    def settle(
        self, tree: Tree, leaves: Leaves, dims: BatchDims, reductions: Reductions, parts: Sequence[Span]
    ) -> None:
        """Where several reductions of a value have held so far and now differ: which of them it is."""
        rows = [list(range(start, stop)) for start, stop in parts]
        differ = [
            place
            for place, join in enumerate(self.joins)
            if isinstance(join, WeightedSum) and _differ(reductions, join.names, rows)
        ]
        if not self._ranks.any(bool(differ)):
            return
        for place, join in enumerate(self.joins):
            if self._ranks.any(place in differ) and isinstance(join, WeightedSum):
                join.names = self._equivalence(tree, leaves, dims).settle(place, join.names, rows)

    def _equivalence(self, tree: Tree, leaves: Leaves, dims: BatchDims) -> EquivalenceCheck:
        def run(others: Leaves) -> Tree:
            return self._run(self._not_compiled, tree_with(self._torch, tree, others, self.lengths))

        sandbox = Sandbox(self._torch, self.module, self.devices)
        return EquivalenceCheck(self._torch, run, leaves, dims, sandbox, self._learns, self._ranks, self._sharded)

    def accumulates_by_backward(self) -> bool:
        """How gradients of the micro-batches are added up: by backward(), else by autograd.grad(). Raises Uncuttable."""
        exchanges = self._training.exchanges
        if self.reentrant and not self._unobserved and exchanges:
            raise Uncuttable(
                "checkpointing of the reentrant kind in it exchanges gradients between ranks; use_reentrant=False does not"
            )
        if self._sharded is not None:
            return True
        return self.reentrant or (self._unobserved and not _hooked(self.parameters))

    def adds_to_grad(self) -> bool:
        """Whether the micro-batches' gradients may be added to what is there already, as those of the backward pass that runs."""
        return self._sharded is not None or (self._training.plain() and self._unobserved)

    def keeps_last(self) -> bool:
        """Whether the last micro-batch is run with its graph at once. Where modules speak with other ranks in it, all of them
        have to make the same forward passes, also where one calls the model once more before its backward pass."""
        return not self._training.exchanges or not any(_communicates(module) for module in self.modules)

    # -- weights that are sharded between ranks

    def synchronized(self, last: bool) -> ContextManager[None]:
        """A micro-batch's backward pass inside exchanges gradients if it is the call's last one."""
        return contextlib.nullcontext() if self._sharded is None or last else self._sharded.no_sync()

    def forward_in_backward(self) -> ContextManager[None]:
        """Forward passes inside are made in a backward pass."""
        return contextlib.nullcontext() if self._sharded is None else self._sharded.resharded_after_forward()

    def all_take_part(self) -> bool:
        """Whether a micro-batch that counts for nothing is run backward all the same, as other ranks may wait for it."""
        return self._sharded is not None

    def check_create_graph(self, create_graph: bool) -> None:
        if create_graph and self._sharded is not None:
            raise RuntimeError("weights that are sharded between ranks (FSDP) have no gradients of gradients")

    # -- gradients made in the forward pass

    def early_loss(self, autocast: AutocastState) -> int | None:
        """The number of the loss whose gradients a call may make in its forward pass; None: it is not to."""
        loss, self._loss = self._loss, None  # until a backward pass has asked for them again
        if autocast.fp16:
            self._training.warn("fp16")
        if self._never_early or autocast.fp16 or self.reentrant or not self.accumulates_by_backward():
            return None
        return loss

    def asked_for(self, wanted: Sequence[Tensor | None], create_graph: bool) -> int | None:
        """A backward pass wants gradients for these outputs: the number of the loss if it is for that one only."""
        given = [(place, gradient) for place, gradient in enumerate(wanted) if gradient is not None]
        self._loss = None
        if len(given) == 1 and not create_graph:
            place, gradient = given[0]
            if isinstance(self.joins[place], WeightedSum) and gradient.numel() == 1:
                self._loss = place
        return self._loss

    def never_early(self) -> None:
        self._never_early = True

    # -- backward passes of micro-batches

    def backward(self, outputs: list[Tensor], gradients: list[Tensor]) -> None:
        """The engine itself."""
        with self._training.calls.backward_of_micro_batch():
            self._training.backward(outputs, gradients)

    def gradients(
        self, outputs: list[Tensor], inputs: list[Tensor], gradients: list[Tensor], create_graph: bool
    ) -> MaybeTensors:
        with self._training.calls.backward_of_micro_batch():
            return self._torch.autograd.grad(outputs, inputs, gradients, allow_unused=True, create_graph=create_graph)

    def second_micro_batch(self) -> None:
        """Has run."""
        if self.buffers.waiting and self.buffers.differ():
            self._training.warn("buffers")


def _differ(reductions: Reductions, names: list[str], rows: list[list[int]]) -> bool:
    return len(names) > 1 and disagreement(reductions.named(names), rows) is not None


def _communicates(module: Module) -> bool:
    return type(module).__name__ in ("SyncBatchNorm", "DistributedDataParallel")


def _hooked(parameters: Iterable[Tensor]) -> bool:
    """Whether anything is called with the gradient of one of them."""
    return any(each._backward_hooks or getattr(each, "_post_accumulate_grad_hooks", None) for each in parameters)
