"""A state that a module keeps from one call to the next: its micro-batches would hand it on to one another."""

from __future__ import annotations

from .comparison import FINE
from .nearness import near
from .pytree import tree_leaves
from .refusal import Keeps, Unseen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..types import Leaves, Torch, Tree
    from ..watch.rng_state import RngState
    from .sandbox import Sandbox

REMEDY = "handed to the call and returned by it, a state is cut with its samples"

BAGS = "its bags are in one row, which offsets divide, and not in one for each sample: padded, with padding_idx, they are cut"


def stateless(torch: Torch, sandbox: Sandbox, run: Callable[[], Tree], random: RngState) -> Leaves:
    """The output of a run within the sandbox. Raises Keeps if another one returns something else, for what the module has kept."""
    attributes, buffers = sandbox.attributes(), sandbox.buffers()
    random.restore()
    first = tree_leaves(torch, run())
    kept = attributes.changed()
    if kept:
        buffers.restore()
        random.restore()
        again = tree_leaves(torch, run())
        if len(first) != len(again) or not all(near(torch, one, other, FINE) for one, other in zip(first, again)):
            names = ", ".join(kept[:3])
            raise Keeps("it keeps something from one call to the next (%s): %s" % (names, REMEDY))
        attributes.restore()
    return first


def fails_on_fewer(error: Exception | None, sandbox: Sandbox, count: int) -> Unseen:
    """Why a module is not cut whose forward pass failed on a part of the `count` samples."""
    why = "its forward pass fails on fewer samples (%s: %s)" % (
        type(error).__name__,
        " ".join(str(error).split())[:200],
    )
    kept = sandbox.attributes().with_rows(count)
    if sandbox.has_bags and "offsets" in str(error):
        return Unseen(BAGS)
    if kept is None:
        return Unseen(why)
    reason = Unseen("%s, and %s, which it keeps, may have a row for each sample: %s" % (why, kept, REMEDY))
    reason.elsewhere = Keeps.elsewhere
    return reason
