"""The first call of a module with layers that wait for it (torch.nn.LazyLinear): a few of its samples make them, as they have no room for all."""

from __future__ import annotations

from .call_looks import CallLooks
from .lazy_layers import has_waiting
from .plan import Plan
from .refusal import Uncuttable, Unseen
from .sample_runs import out_of_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ..types import Leaves, Module, Torch, Tree
    from .batch_dims import BatchDims
    from .cut_context import CutContext
    from .ranks import OneRank


def make_layers(
    torch: Torch,
    module: Module,
    context: CutContext,
    tree: Tree,
    leaves: Leaves,
    tried: Iterable[BatchDims],
    lengths: tuple[int, ...],
    ranks: OneRank,
) -> None:
    """To be called before a Plan is made, which is one for the weights of then. `tried`, `lengths`: along which dimensions the call may be cut.
    Raises Uncuttable."""
    if not has_waiting(module):
        return
    error: Exception | None = None
    for dims in tried:
        plan = Plan(torch, module, context, lengths, leaves, ranks)
        try:
            CallLooks(torch, plan, tree, leaves, dims).make_layers()
            return
        except Uncuttable:
            raise
        except Exception as failed:
            if out_of_memory(failed):
                raise
            error = error or failed.with_traceback(None)  # whose frames hold the batch
    raise Unseen(
        "a layer that waits for its first call cannot be made by a few samples (%s: %s); called once before the training, it is"
        % (type(error).__name__, " ".join(str(error).split())[:200])
    )
