"""Types that the hook's parts share. Only type checkers read this file: at run time it is never imported.

torch's own classes are aliases of `Any`: they differ between the versions that the hook works with, and most of the objects
belong to the script.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, ContextManager, Dict, List, Optional, Protocol, Tuple, TypedDict, Union

from .apply.gradient_accumulator import MicroBatch
from .estimate.memory import CardMemory
from .watch.loader import LoaderIterator
from .watch.memory import CpuMemory, CudaMemory

#: The module torch.
Torch = Any
Tensor = Any
#: torch.nn.Module
Module = Any
#: torch.optim.Optimizer
Optimizer = Any
#: torch.utils.data.DataLoader
Loader = Any
#: A function that is wrapped or patched.
Call = Callable[..., Any]
#: What a module takes or returns: tensors and values in containers.
Tree = Any
#: The tensors and values of a Tree, in order.
Leaves = List[Any]
#: Gradients in the order of their tensors; None: no gradient.
MaybeTensors = Tuple[Optional[Tensor], ...]
#: Rows start:stop of a batch.
Span = Tuple[int, int]
#: A message from the worker.
Message = Dict[str, Any]
Memory = Union[CpuMemory, CudaMemory, CardMemory]
#: Whether the training loop had ended when the exception of this traceback was raised.
LoopEnded = Callable[[Optional[TracebackType]], bool]


class ProcessState(TypedDict):
    """The state of the process, for the report of an exception."""

    #: What the process does: load, train, eval, save.
    phase: str
    #: The budget refused an allocation.
    refused: bool
    micro_batch: int | None
    #: Whether a module is trained, and is in evaluation mode only while it is evaluated.
    trains: Callable[[Module], bool] | None
    ended: LoopEnded | None
    #: An optimizer has made a step.
    stepped: bool
    #: The variable whose growth accounts for a good part of the memory in use when the exception was raised.
    growing_variable: Callable[[TracebackType | None], str | None] | None
    #: The model was called with batches of the script's own, while a loader might yet have been asked for one.
    waited_for_loader: bool
    #: Nothing that torch counts as an optimizer was made.
    without_optimizer: bool
    #: The kinds of the modules whose calls were cut; None: none had to be.
    cut_calls: list[str] | None
    #: Tells that the loop is over, as for a script that counts its batches: it has been given more than a pass over its data has.
    end_loop: Callable[[], None] | None


class Controller(Protocol):
    """Decides on the batches of a training loop. `LoaderIterator` asks it for them; the watchers of optimizers and backward
    passes tell it what happens."""

    @property
    def micro_batch(self) -> int | None:
        """Samples of the current micro-batch."""

    def wraps(self, loader: Loader) -> bool:
        """Whether a loop over `loader` that begins now gets a LoaderIterator."""
        ...

    def keeps_own_batches(self, iterator: LoaderIterator) -> bool:
        """Whether a loop that began with its own batches keeps them."""
        ...

    def supplies(self, iterator: LoaderIterator) -> bool:
        """Whether the next batch comes from next()."""
        ...

    def next(self, iterator: LoaderIterator) -> Any:
        """The next batch. Raises StopIteration at the end."""

    def before_backward(self) -> None:
        """An outermost backward pass of the script begins."""

    def before_step(self) -> None:
        """An optimizer is about to step."""

    def after_step(self) -> None:
        """An optimizer has stepped."""

    def before_closure(self) -> None:
        """A step's closure is about to run forward and backward once more."""

    def before_exit(self) -> None:
        """The process is about to exit while the worker controls it."""


class Batches(Protocol):
    """The batches of one pass over a loader, of other sizes than its own."""

    leading: bool

    def take(self) -> tuple[Any, MicroBatch | None]:
        """(batch, its MicroBatch or None for a whole batch). Raises StopIteration at the end."""
        ...


class LazyHeads(Protocol):
    """Returns a model's logits without having computed them."""

    def within_cut(self, allowed: bool) -> ContextManager[None]:
        """Inside runs a micro-batch of a cut call (`allowed`: logits need not be computed), or a model is checked."""
        ...

    def made_of(self, leaf: Any) -> tuple[Tensor, Call] | None:
        """Of logits that are not computed: (what they are made of, what makes logits of that); None: of any other output."""
        ...


class StepListener(Protocol):
    """Is told of optimizer steps."""

    def before_step(self, optimizer: Optimizer | None) -> None:
        """`optimizer` is None within a step's closure."""

    def after_step(self, optimizer: Optimizer) -> None: ...

    def before_closure(self) -> None:
        """A step's closure is about to run forward and backward once more."""
