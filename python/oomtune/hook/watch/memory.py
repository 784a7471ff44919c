"""Memory in use, in bytes: by the preload's ledger and by torch's allocator. None: unknown here."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import CDLL
    from typing import Any

    from ..types import Call, Memory, Torch


class Ledger:
    """The counters of the preloaded library, found in the running process; None if nothing was preloaded."""

    #: Refused allocations of the lives before this one.
    _refused_before = 0

    @classmethod
    def begin_life(cls) -> None:
        """In a life, before anything else."""
        cls.adopt()
        cls._refused_before = 0
        cls._refused_before = cls(-1).refused()

    @staticmethod
    def disown() -> None:
        """In the fork server, before it forks: the life counts what they have in common, and what it frees of that."""
        _call("oomtune_disown")

    @staticmethod
    def adopt() -> None:
        """Counts all host memory of this process as its own."""
        _call("oomtune_adopt")

    def __init__(self, device: int) -> None:
        self._device = device
        self._live: Call | None = None
        self._peak: Call | None = None
        self._reset: Call | None = None
        self._refused: Call | None = None
        try:
            here = ctypes.CDLL(None)
            self._live = self._function(here.oomtune_live, ctypes.c_uint64)
            self._peak = self._function(here.oomtune_peak, ctypes.c_uint64)
            self._reset = self._function(here.oomtune_reset_peak, None)
            refused = here.oomtune_refused
            refused.argtypes = []
            refused.restype = ctypes.c_uint64
            self._refused = refused
        except (AttributeError, OSError):
            pass

    @staticmethod
    def _function(function: Any, result: Any) -> Any:
        function.argtypes = [ctypes.c_int]
        function.restype = result
        return function

    def live(self) -> int | None:
        return None if self._live is None else int(self._live(self._device))

    def peak(self) -> int | None:
        return None if self._peak is None else int(self._peak(self._device))

    def reset(self) -> None:
        if self._reset is not None:
            self._reset(self._device)

    def refused(self) -> int:
        """Refused allocations since this life began."""
        return 0 if self._refused is None else int(self._refused()) - self._refused_before


def _call(name: str) -> None:
    """Calls a function of the preloaded library, if it is there (on a GPU host memory is not counted)."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return
    function.argtypes = []
    function.restype = None
    function()


class Uncached:
    """Memory without a caching allocator: nothing is reserved, and nothing is tried again."""

    ledger: Ledger

    def retries(self) -> int:
        return 0

    def reserved(self) -> None:
        return None

    def measure(self) -> None:
        """Nothing is held but what is counted."""

    def failures(self) -> int:
        """Refused allocations so far: if they grow, the script may have caught an out-of-memory error."""
        return self.ledger.refused()


class CpuMemory(Uncached):
    """torch on the CPU: only the ledger counts host memory."""

    device = "cpu"

    def __init__(self) -> None:
        self.ledger = Ledger(-1)
        self._kernels = OneDnnKernels()

    def synchronize(self) -> None:
        pass

    def free_cache(self) -> None:
        self._kernels.forget()

    def reset(self) -> None:
        self.ledger.reset()

    def peaks(self) -> tuple[int | None, int | None, int | None]:
        """(total, allocated, reserved): peaks since reset()."""
        peak = self.ledger.peak()
        return peak, peak, None

    def live(self) -> int | None:
        return self.ledger.live()


class CudaMemory:
    """torch on a GPU: figures of the caching allocator, and the ledger's for all other memory."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._ordinal = torch.cuda.current_device()
        self.device = "cuda:%d" % self._ordinal
        self.ledger = Ledger(self._ordinal)

    def _stats(self) -> dict[str, Any]:
        try:
            return self._torch.cuda.memory_stats_as_nested_dict(self._ordinal)
        except Exception:  # other allocator back ends (older cudaMallocAsync) have no figures
            return {}

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._ordinal)

    def free_cache(self) -> None:
        self._torch.cuda.empty_cache()

    def reset(self) -> None:
        self.ledger.reset()
        try:
            self._torch.cuda.reset_peak_memory_stats(self._ordinal)
        except RuntimeError:
            pass

    def peaks(self) -> tuple[int | None, int | None, int | None]:
        stats = self._stats()
        return self.ledger.peak(), _peak(stats, "allocated_bytes"), _peak(stats, "reserved_bytes")

    def live(self) -> int | None:
        allocated = self._stats().get("allocated_bytes")
        return allocated["all"]["current"] if allocated else None

    def measure(self) -> None:
        """What kernels and libraries have taken by now counts for the peak, too: the driver is asked, not its last answer."""
        self.ledger.live()

    def retries(self) -> int:
        return int(self._stats().get("num_alloc_retries", 0))

    def reserved(self) -> tuple[int, int] | None:
        """(bytes that the allocator holds from the driver, all bytes that it ever took from it)."""
        figures = self._stats().get("reserved_bytes")
        return (int(figures["all"]["current"]), int(figures["all"]["allocated"])) if figures else None

    def failures(self) -> int:
        # A refused driver call is no failure yet: torch frees its cache and retries.
        return int(self._stats().get("num_ooms", 0))


def _peak(stats: dict[str, Any], name: str) -> int | None:
    figures = stats.get(name)
    return int(figures["all"]["peak"]) if figures else None


def device_memory(torch: Torch) -> Memory:
    """The memory of the device that this process uses."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return CudaMemory(torch)
    return CpuMemory()


class OneDnnKernels:
    """oneDNN's cache of compiled kernels. Does nothing if the library is not found."""

    def __init__(self) -> None:
        self._library = _library()

    def forget(self) -> None:
        if self._library is None:
            return
        capacity = ctypes.c_int()
        if self._library.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity)) == 0:
            self._library.dnnl_set_primitive_cache_capacity(0)
            self._library.dnnl_set_primitive_cache_capacity(capacity)


def _library() -> CDLL | None:
    """oneDNN's own library, or the part of torch that it was built into."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "dnnl" in line or "torch_cpu" in line}
    except OSError:
        return None
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
            library.dnnl_set_primitive_cache_capacity.argtypes = [ctypes.c_int]
            library.dnnl_get_primitive_cache_capacity.argtypes = [ctypes.POINTER(ctypes.c_int)]
            return library
        except (OSError, AttributeError):
            continue
    return None
