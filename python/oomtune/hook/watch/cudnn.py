"""Whether cuDNN may have taken workspace that it does without: convolutions and recurrent layers are given that of their fastest
algorithm, and where memory is short that of a slower one. It loads its libraries as they are needed."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable

    from ..types import Torch
    from .models import Modules

#: Asked for its version, as torch does before it chooses an attention, it loads `graph`; for attention, which needs what it takes,
#: and for some convolutions, the others (9.x; seen on an H100 with torch 2.11).
OF_ATTENTION = frozenset(
    ("graph", "heuristic", "engines_precompiled", "engines_runtime_compiled", "engines_tensor_ir", "ext")
)
OF_VERSION = frozenset(("graph",))

_LIBRARY = re.compile(r"/libcudnn_(\w+)\.so")


class Benchmark:
    """The script's `torch.backends.cudnn.benchmark`: with it the first step of each new shape tries all algorithms, with all of their workspaces."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._is_off = False

    def allow(self, allowed: bool) -> None:
        """Turns it off where the script has it on, or on again where this did."""
        settings = self._torch.backends.cudnn
        if allowed and self._is_off:
            settings.benchmark, self._is_off = True, False
        elif not allowed and settings.benchmark:
            settings.benchmark, self._is_off = False, True


def may_do_with_less(torch: Torch, modules: Modules) -> bool:
    try:
        with open("/proc/self/maps") as maps:
            loaded = libraries(maps)
    except OSError:
        return False
    return chooses(loaded, lambda: modules.any_of(torch.nn.modules.conv._ConvNd, torch.nn.RNNBase))


def chooses(loaded: set[str], has_layers: Callable[[], bool]) -> bool:
    """Whether it has chosen an algorithm. `has_layers`: a model has convolutions or recurrent layers."""
    return not loaded <= OF_ATTENTION or (not loaded <= OF_VERSION and has_layers())


def libraries(maps: Iterable[str]) -> set[str]:
    """The parts of cuDNN among the lines of a process's memory map."""
    return {found.group(1) for found in map(_LIBRARY.search, maps) if found}
