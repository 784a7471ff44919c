"""What the cuts of all modules of one process share."""

from __future__ import annotations

from ..watch.world import world_size
from .ranks import ModuleRanks
from .settings import ModuleSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn

    from ..types import LazyHeads, Module, Torch
    from .model_calls import ModelCalls
    from .refusal import Uncuttable

#: How many batch sizes are remembered: loops and frameworks fetch some ahead.
REMEMBERED = 4

DIFFERENCES = {
    "buffers": "The model keeps values of its own (buffers) that its forward pass takes from the samples: they are those of micro-batches.",
    "random_draws": "The model draws random numbers in its forward pass (dropout, noise): each micro-batch draws its own, of the same kind as "
    "those of the whole batch, and not the same numbers.",
    "equal_rows": "Micro-batches are not made by tokens but of equal numbers of samples, as the inputs do not tell how long the samples are.",
    "untrimmed": "Micro-batches keep the padding of their batch: %s.",
    "kept": "The model keeps something of its calls besides what they return (%s): where the script reads that, it is of micro-batches.",
    "cudnn": "Recurrent networks run without cuDNN, as the dropout between its layers cannot be drawn again in the backward pass.",
    "fp16": "In fp16 the gradients of a micro-batch overflow later than those of the whole batch: the loss scaler may skip fewer steps.",
}


class CutContext:
    """Shared by the plans of all modules. `warn(code, message)` is called if a result may differ; `plain()`: whether the current
    backward pass is a backward() of the script for all parameters; `refuse()`: does not return."""

    def __init__(
        self,
        torch: Torch,
        calls: ModelCalls,
        warn: Callable[[str, str], None],
        plain: Callable[[], bool],
        refuse: Callable[[Module, Uncuttable], NoReturn],
    ) -> None:
        self._torch = torch
        self.calls = calls
        self.ranks = ModuleRanks(torch)
        self.settings = ModuleSettings(torch)
        self.plain = plain
        self.refuse = refuse
        #: What returns logits that are not computed; None: nothing does.
        self.heads: LazyHeads | None = None
        #: Runs only so many micro-batches of a call; None: all.
        self.most_parts: int | None = None
        #: Rows of the latest batches of the loop, the newest first.
        self.sizes: list[int] = []
        self._warn = warn
        #: Codes of the warnings given so far.
        self.warned: set[str] = set()
        #: torch's own function, from before it was patched.
        self.backward: Callable[..., None] = torch.autograd.backward

    @property
    def exchanges(self) -> bool:
        """Several ranks reduce their gradients."""
        return world_size(self._torch) > 1

    def warn(self, code: str, *words: str) -> None:
        if code not in self.warned:
            self.warned.add(code)
            self._warn(code, DIFFERENCES[code] % words if words else DIFFERENCES[code])

    def note_batch_rows(self, rows: int | None) -> None:
        """The loop gets a batch of `rows` samples."""
        if rows and rows not in self.sizes[:1]:
            self.sizes = ([rows] + [size for size in self.sizes if size != rows])[: REMEMBERED + 1]
