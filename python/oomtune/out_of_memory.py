"""Whether an error means out of memory, and what to do before the next try."""

from __future__ import annotations

import gc
import sys
import traceback

from .hook.report.exceptions import is_oom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What other finders take for out of memory besides.
_OTHERS = ("CUDNN_STATUS_NOT_SUPPORTED", "Allocation failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Of the device or of the host, as torch and the libraries under it report it."""
    return is_oom(error) or (isinstance(error, RuntimeError) and any(part in str(error) for part in _OTHERS))


def let_go(error: BaseException) -> None:
    """Frees what the functions that the error came through hold: tensors, above all."""
    inner: BaseException | None = error
    while inner is not None:
        traceback.clear_frames(inner.__traceback__)
        inner = inner.__cause__ or inner.__context__


def free_memory() -> None:
    """Gives back what nobody uses any more: garbage, and the blocks that torch caches."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    for name in ("mps", "xpu"):
        backend = getattr(torch, name, None)
        if (
            backend is not None
            and hasattr(backend, "empty_cache")
            and getattr(torch.backends, name, backend).is_available()
        ):
            backend.empty_cache()


def in_search() -> bool:
    """Whether a search measures this process: it is to see each out-of-memory error itself."""
    import os

    return os.environ.get("OOMTUNE_HOOK") in ("probe", "measure")
