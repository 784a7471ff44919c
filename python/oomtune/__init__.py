"""oomtune for Python programs: `config()` says what was chosen for this run, `recommended()` what was found before, `find_batch()`
searches for a function.

Outside oomtune every figure has the default that the caller names, so a script that asks runs the same by hand.

All names are loaded when they are first used: the hook lives in this package too, and importing it must cost nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .effective_batch import keep_effective_batch
    from .errors import OomtuneError
    from .executable_batch_size import find_executable_batch_size
    from .knobs import Config, config
    from .micro_batches import auto_micro_batch
    from .recommendations import Recommendation, recommended
    from .search.find_batch import find_batch
    from .tracking import log_config

__version__ = "0.1.0"
__all__ = [
    "Config",
    "OomtuneError",
    "Recommendation",
    "auto_micro_batch",
    "config",
    "find_batch",
    "find_executable_batch_size",
    "keep_effective_batch",
    "log_config",
    "recommended",
]

#: Where each public name is.
_MODULES = {
    "Config": "knobs",
    "OomtuneError": "errors",
    "Recommendation": "recommendations",
    "auto_micro_batch": "micro_batches",
    "config": "knobs",
    "find_batch": "search.find_batch",
    "find_executable_batch_size": "executable_batch_size",
    "keep_effective_batch": "effective_batch",
    "log_config": "tracking",
    "recommended": "recommendations",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError("module 'oomtune' has no attribute %r" % name)
    import importlib

    value = globals()[name] = getattr(importlib.import_module("oomtune." + module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
