"""Bytes in use, as the driver-level ledger and torch's own allocator see them. None: cannot be known here."""

import ctypes

from .kernels import Kernels


class Ledger:
    """The preload's counters, looked up in the running process; absent where nothing was preloaded."""

    def __init__(self, device):
        self._device = device
        self._live = self._peak = self._reset = self._refused = None
        try:
            here = ctypes.CDLL(None)
            self._live = self._function(here.oomtune_live, ctypes.c_uint64)
            self._peak = self._function(here.oomtune_peak, ctypes.c_uint64)
            self._reset = self._function(here.oomtune_reset_peak, None)
            self._refused = here.oomtune_refused
            self._refused.argtypes = []
            self._refused.restype = ctypes.c_uint64
            self.present = True
        except (AttributeError, OSError):
            self.present = False

    @staticmethod
    def _function(function, result):
        function.argtypes = [ctypes.c_int]
        function.restype = result
        return function

    def live(self):
        return int(self._live(self._device)) if self.present else None

    def peak(self):
        return int(self._peak(self._device)) if self.present else None

    def reset(self):
        if self.present:
            self._reset(self._device)

    def refused(self):
        return int(self._refused()) if self.present else 0


class CpuMeter:
    """torch on the CPU: the ledger of host memory is all there is."""

    device = "cpu"

    def __init__(self):
        self.ledger = Ledger(-1)
        self._kernels = Kernels()

    def synchronize(self):
        pass

    def tidy(self):
        self._kernels.forget()

    def reset(self):
        self.ledger.reset()

    def peaks(self):
        """(total, allocated, reserved): highest since reset()."""
        peak = self.ledger.peak()
        return peak, peak, None

    def live(self):
        return self.ledger.live()

    def retries(self):
        return 0

    def reserved(self):
        return None

    def failures(self):
        """Allocations that were refused so far: growth tells of an out-of-memory error that the script swallowed."""
        return self.ledger.refused()


class CudaMeter:
    """torch on a GPU: the caching allocator's figures, and the ledger's for all that it does not see."""

    def __init__(self, torch):
        self._torch = torch
        self._ordinal = torch.cuda.current_device()
        self.device = "cuda:%d" % self._ordinal
        self.ledger = Ledger(self._ordinal)

    def _stats(self):
        try:
            return self._torch.cuda.memory_stats_as_nested_dict(self._ordinal)
        except Exception:  # other allocator back ends (cudaMallocAsync of old) have no figures
            return {}

    def synchronize(self):
        self._torch.cuda.synchronize(self._ordinal)

    def tidy(self):
        self._torch.cuda.empty_cache()

    def reset(self):
        self.ledger.reset()
        try:
            self._torch.cuda.reset_peak_memory_stats(self._ordinal)
        except RuntimeError:
            pass

    def peaks(self):
        stats = self._stats()
        return self.ledger.peak(), _peak(stats, "allocated_bytes"), _peak(stats, "reserved_bytes")

    def live(self):
        allocated = self._stats().get("allocated_bytes")
        return allocated["all"]["current"] if allocated else None

    def retries(self):
        return int(self._stats().get("num_alloc_retries", 0))

    def reserved(self):
        """(bytes that the allocator holds of the driver, all that it ever asked of it)."""
        figures = self._stats().get("reserved_bytes")
        return (int(figures["all"]["current"]), int(figures["all"]["allocated"])) if figures else None

    def failures(self):
        # A refused driver call is no failure yet: torch frees its cache and tries again.
        return int(self._stats().get("num_ooms", 0))


def _peak(stats, name):
    figures = stats.get(name)
    return int(figures["all"]["peak"]) if figures else None


def find_meter(torch):
    """The meter of the device that this process has begun to use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return CudaMeter(torch)
    return CpuMeter()
