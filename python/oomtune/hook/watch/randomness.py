"""The state of the random numbers that data loading draws from."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch


class Randomness:
    """As it is now: torch's on the CPU, Python's and, where it is loaded, numpy's."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._torchs = torch.get_rng_state()
        self._pythons = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpys = None if numpy is None else numpy.random.get_state()

    def __eq__(self, other: Any) -> bool:
        return (
            self._torch.equal(self._torchs, other._torchs)
            and self._pythons == other._pythons
            and _plain(self._numpys) == _plain(other._numpys)
        )

    def restore(self) -> None:
        self._torch.set_rng_state(self._torchs)
        random.setstate(self._pythons)
        if self._numpys is not None:
            sys.modules["numpy"].random.set_state(self._numpys)


def _plain(state: Any) -> Any:
    return None if state is None else tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)
