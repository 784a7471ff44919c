"""How many ranks train together."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import Torch


def world_size(torch: Torch) -> int:
    """By the launcher's word, or by the group that the script has made itself (of SLURM_PROCID, or of arguments). At the time of a call:
    a script makes its group before it trains."""
    told = int(os.environ.get("WORLD_SIZE") or 1)
    distributed = torch.distributed
    if told > 1 or not distributed.is_available() or not distributed.is_initialized():
        return told
    return int(distributed.get_world_size())
