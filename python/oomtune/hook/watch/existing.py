"""All objects that the garbage collector knows, also those that a fork or a search has set apart from its collections."""

from __future__ import annotations

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def existing_objects() -> list[Any]:
    """gc.get_objects() leaves out what gc.freeze() has set apart: a script's model may be among that, where it was made before the device was used."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()
