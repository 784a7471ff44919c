"""Which dimension of a call's inputs counts its samples, by running the model."""

from __future__ import annotations

from .batch_dims import candidates
from .call_looks import CallLooks
from .plan import Plan
from .pytree import tree_leaves
from .ranks import OneRank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..types import Module, Torch, Tree
    from .cut_context import CutContext


def sample_dim(torch: Torch, module: Module, tree: Tree, counts: Sequence[int], context: CutContext) -> int | None:
    """`counts`: how many samples there would be, the likeliest first. Returns the dimension of the first tensor along which a cut
    gives the same; None: along none of them, or several ranks would have to look together."""
    if context.exchanges:
        return None
    for count in counts:
        leaves = tree_leaves(torch, tree, (count,))
        tensors = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()]
        for dims in candidates(torch, leaves, [count]):
            if dims.count != count or not tensors:
                continue
            try:
                plan = Plan(torch, module, context, (count,), leaves, OneRank())
                CallLooks(torch, plan, tree, leaves, dims).check()
            except Exception:  # one that memory is too short for, too: sizes are tried later
                continue
            return dims.dims[tensors[0]]
    return None
