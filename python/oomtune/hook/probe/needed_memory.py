"""What steps need of a GPU's memory, in bytes: all that they allocate but what is given back at once. That is workspace of convolutions,
which take more than they need while there is room; what lies in the allocator's cache is not counted either. No size fits that needs
more than the budget, whatever libraries do, and none lasts that leaves no room for what lies in pieces beside it."""

from __future__ import annotations

from ..watch.cudnn import may_do_with_less

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Optional, Tuple

    from ..types import Memory, Torch
    from ..watch.models import Modules

    Event = Mapping[str, Any]
    #: The most that was allocated, but what was given back at once (None: not known, or all of it), and the most that lay in pieces
    #: when the allocator had given back what it could of segments that can grow (None: it never had to).
    Need = Tuple[Optional[int], Optional[int]]

#: Bytes from which on something may be workspace; below, it makes no difference.
WORKSPACE = 1 << 20
#: Allocations that are looked at, at most: 20 steps of a model with a thousand layers.
MOST_EVENTS = 200_000
#: Actions of the history by which the allocator holds more or less: of segments that can grow, and of whole ones.
HOLDS_MORE = ("segment_map", "segment_alloc")
HOLDS_LESS = ("segment_unmap", "segment_free")


def more_of(one: Need, other: Need) -> Need:
    needed, pieces = (max((n for n in both if n is not None), default=None) for both in zip(one, other))
    return needed, pieces


def need_of(events: Iterable[Event], allocated: int, reserved: int) -> Need:
    """`events`: the allocator's history; `allocated`, `reserved`: bytes at its beginning."""
    peak = allocated
    pieces: int | None = None
    #: The last event took so many bytes, at this address.
    taken, address = 0, None
    gives_back = False
    for event in events:
        action, size = event["action"], event["size"]
        if action in HOLDS_LESS:
            reserved -= size
            gives_back = action == "segment_unmap"
            continue
        if gives_back:
            pieces, gives_back = max(pieces or 0, reserved - allocated), False
        if action in HOLDS_MORE:
            reserved += size
        elif action == "alloc":
            peak, allocated = max(peak, allocated), allocated + size
            taken, address = size, event["addr"]
        elif action == "free_requested":
            if event["addr"] != address or taken < WORKSPACE:
                peak = max(peak, allocated)
            allocated -= size
            address = None
    return max(peak, allocated), pieces


class NeededMemory:
    """Of the steps of one probe, from `begin()` to `end()`, and on from where it begins again."""

    def __init__(self, torch: Torch, memory: Memory, modules: Modules) -> None:
        self._torch = torch
        self._memory = memory
        self._modules = modules
        #: Whether what is needed and what lies in pieces can be told; None: not asked yet.
        self._applies: bool | None = None
        #: A library may have been given more than it needs.
        self._is_spared = False
        #: Bytes allocated and held at the beginning; None: it has not begun, or has ended.
        self._start: tuple[int, int] | None = None
        self._need: Need = (None, None)

    def begin(self) -> None:
        """Nothing, where it has begun."""
        if self._applies is None:
            self._is_spared = may_do_with_less(self._torch, self._modules)
            self._applies = self._can_be_told()
        if not self._applies or self._start is not None:
            return
        try:
            self._torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=MOST_EVENTS)
        except (AttributeError, TypeError, RuntimeError):  # before torch 2.1, and allocators that keep no history
            self._applies = False
            return
        self._start = (self._memory.live() or 0, (self._memory.reserved() or (0, 0))[0])

    def _can_be_told(self) -> bool:
        """Recurrent layers need what cuDNN takes for them; a script that keeps a history keeps it for itself."""
        torch = self._torch
        if self._is_spared and self._modules.any_of(torch.nn.RNNBase):
            return False
        try:
            return not torch._C._cuda_isHistoryEnabled()
        except (AttributeError, RuntimeError):  # before torch 2.1, and without a driver
            return False

    def end(self) -> Need:
        if self._start is not None:
            start, self._start = self._start, None
            memory = self._torch.cuda.memory
            events: list[Event] = memory._snapshot()["device_traces"][self._torch.cuda.current_device()]
            memory._record_memory_history(enabled=None)
            if len(events) < MOST_EVENTS:
                needed, pieces = need_of(events, *start)
                # What no library took too much of is needed, given back at once or not.
                self._need = more_of(self._need, (needed if self._is_spared else None, pieces))
        return self._need
