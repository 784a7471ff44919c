"""How many ranks train together, and which of them this is: by the launcher's word, or by the group that the script has made itself (of
SLURM_PROCID, or of arguments). At the time of a call: a script makes its group before it trains."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch


def world_size(torch: Torch | None) -> int:
    told = int(os.environ.get("WORLD_SIZE") or 1)
    if told > 1 or torch is None or not _has_group(torch):
        return told
    return int(torch.distributed.get_world_size())


def world_size_now() -> int:
    """The same, whether or not torch has been imported."""
    torch: Any = sys.modules.get("torch")
    return world_size(torch)


def rank(torch: Torch | None) -> int:
    if torch is None or not _has_group(torch):
        return int(os.environ.get("RANK") or 0)
    return int(torch.distributed.get_rank())


def _has_group(torch: Torch) -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
