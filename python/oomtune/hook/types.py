"""Names for the types that the hook's parts share. Only type checkers read this file: at run time it is never imported.

torch's own classes are `Any`, under names that say which is meant: they differ between the versions that the hook works with,
and most of what is given to it belongs to the script.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, TypedDict, Union

from .apply.gate import MicroBatch
from .watch.loader import LoopIterator
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
#: A function that is wrapped, patched or passed on.
Call = Callable[..., Any]
#: What a module takes or returns: tensors and values in containers.
Tree = Any
#: The tensors and values of a Tree, in order.
Leaves = List[Any]
#: Gradients, in the order of what they are of; None: none.
MaybeTensors = Tuple[Optional[Tensor], ...]
#: Rows start:stop of a batch.
Span = Tuple[int, int]
#: A line from the worker.
Message = Dict[str, Any]
Memory = Union[CpuMemory, CudaMemory]
#: Whether the training loop had ended where this traceback comes from.
LoopEnded = Callable[[Optional[TracebackType]], bool]


class ProcessState(TypedDict):
    """What the report of an exception needs to know."""

    #: Where the process is, as tracked: load, train, eval, save.
    phase: str
    #: The budget refused an allocation.
    refused: bool
    micro_batch: int | None
    #: Whether a module is one that is trained, and switched to evaluation for evaluating only.
    trains: Callable[[Module], bool] | None
    ended: LoopEnded | None
    #: The variable that has grown by a good part of the memory that was in use where this traceback comes from.
    keeper: Callable[[TracebackType | None], str | None] | None


class Controller(Protocol):
    """Decides on a loop's batches. What asks it: loader.LoopIterator for batches, the watchers of optimizers and backward passes
    when something happens."""

    @property
    def micro_batch(self) -> int | None:
        """Samples of the micro-batch that runs now."""

    def watches(self, loader: Loader) -> bool:
        """Whether a loop over `loader` that begins now gets a LoopIterator."""
        ...

    def keeps_out(self, iterator: LoopIterator) -> bool:
        """Whether a loop that began with batches of its own keeps them."""
        ...

    def takes(self, iterator: LoopIterator) -> bool:
        """Whether the next batch is for next() to give."""
        ...

    def next(self, iterator: LoopIterator) -> Any:
        """The next batch; StopIteration at the end."""

    def backward(self) -> None:
        """An outermost backward pass of the script begins."""

    def before_step(self) -> None:
        """An optimizer is about to step."""

    def after_step(self) -> None:
        """An optimizer has stepped."""

    def forward_backward_again(self) -> None:
        """A step's closure runs the model once more."""

    def ending(self) -> None:
        """The process comes to its end while its batches are ours."""


class Pass(Protocol):
    """One pass over a loader in a job that runs with other batches than its own."""

    paced: bool

    def take(self) -> tuple[Any, MicroBatch | None]:
        """(batch, which micro-batch it is, if it is one); StopIteration at the end."""
        ...


class Listener(Protocol):
    """Is told of the steps that optimizers make."""

    def before_step(self, optimizer: Optimizer | None) -> None:
        """None: within a step's closure."""

    def after_step(self, optimizer: Optimizer) -> None: ...

    def forward_backward_again(self) -> None:
        """A step's closure runs the model once more."""
