"""What a life finds out for those after it, in memory that they all share: reading a data set for its longest samples takes seconds."""

from __future__ import annotations

import mmap
import pickle
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Bytes of text at most. What does not fit is found out again.
ROOM = 1 << 20
LENGTH = struct.Struct("<Q")


class Findings:
    """Made before the first life is forked. Lives come one after the other, so that none writes while another reads."""

    def __init__(self) -> None:
        # Anonymous and shared with what is forked; pages that nobody writes take no memory.
        self._memory = mmap.mmap(-1, ROOM)

    def _all(self) -> dict[str, Any]:
        (length,) = LENGTH.unpack_from(self._memory)
        found: dict[str, Any] = pickle.loads(self._memory[LENGTH.size : LENGTH.size + length]) if length else {}
        return found

    def get(self, key: str) -> Any:
        return self._all().get(key)

    def put(self, key: str, value: dict[int, int]) -> None:
        """Only whole numbers: what else a sampler draws may not mean the same in another process."""
        if not all(type(one) is int for one in value):
            return
        text = pickle.dumps({**self._all(), key: value}, protocol=4)
        if len(text) > ROOM - LENGTH.size:
            return
        # A life may be killed at any time: what it has half written counts for nothing.
        LENGTH.pack_into(self._memory, 0, 0)
        self._memory[LENGTH.size : LENGTH.size + len(text)] = text
        LENGTH.pack_into(self._memory, 0, len(text))
