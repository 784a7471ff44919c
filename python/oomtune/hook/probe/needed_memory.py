"""What steps need of a GPU's memory, in bytes: all that they allocate but what is given back at once. That is workspace of convolutions,
which take more than they need while there is room; what lies in the allocator's cache is not counted either. No size fits that needs
more than the budget, whatever libraries do."""

from __future__ import annotations

from ..watch.cudnn import may_do_with_less

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

    from ..types import Memory, Torch
    from ..watch.models import Modules

    Event = Mapping[str, Any]

#: Bytes from which on something may be workspace; below, it makes no difference.
WORKSPACE = 1 << 20
#: Allocations that are looked at, at most: 20 steps of a model with a thousand layers.
MOST_EVENTS = 200_000


def needed_peak(events: Iterable[Event], allocated: int) -> int:
    """`events`: the allocator's history, `allocated`: bytes at its beginning."""
    peak = allocated
    #: The last event took so many bytes, at this address.
    taken, address = 0, None
    for event in events:
        if event["action"] == "alloc":
            peak, allocated = max(peak, allocated), allocated + event["size"]
            taken, address = event["size"], event["addr"]
        elif event["action"] == "free_requested":
            if event["addr"] != address or taken < WORKSPACE:
                peak = max(peak, allocated)
            allocated -= event["size"]
            address = None
    return max(peak, allocated)


class NeededMemory:
    """Of the steps between `begin()` and `end()`."""

    def __init__(self, torch: Torch, memory: Memory, modules: Modules) -> None:
        self._torch = torch
        self._memory = memory
        self._modules = modules
        #: Bytes allocated at the beginning; None: it has not begun, or has ended.
        self._allocated: int | None = None
        self._bytes: int | None = None

    def begin(self) -> None:
        """Recurrent layers need what cuDNN takes for them."""
        torch = self._torch
        if self._bytes is not None or not may_do_with_less(torch, self._modules):
            return
        if self._modules.any_of(torch.nn.RNNBase):
            return
        try:
            if torch._C._cuda_isHistoryEnabled():
                return  # the script keeps one for itself
            torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=MOST_EVENTS)
        except (AttributeError, TypeError, RuntimeError):  # before torch 2.1, and allocators that keep no history
            return
        self._allocated = self._memory.live()

    def end(self) -> int | None:
        """The bytes; None: not known."""
        if self._allocated is not None:
            start, self._allocated = self._allocated, None
            memory = self._torch.cuda.memory
            events: list[Event] = memory._snapshot()["device_traces"][self._torch.cuda.current_device()]
            memory._record_memory_history(enabled=None)
            if len(events) < MOST_EVENTS:
                self._bytes = needed_peak(events, start)
        return self._bytes
