"""Calls of models that no optimizer steps: a teacher, a target, one whose features make the loss."""

from __future__ import annotations

from collections.abc import Mapping

from .batch_dims import candidates
from .call_looks import CallLooks
from .cut_call import CutCall
from .known_plans import KnownPlans
from .plan import Plan
from .ranks import OneRank
from .reductions import Reductions
from .refusal import Mismatch, Uncuttable, WritesWeights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Leaves, Module, Torch, Tree
    from .batch_dims import BatchDims
    from .cut_context import CutContext
    from .division import Division
    from .known_plans import Planned


class AuxiliaryCalls:
    """Each is cut if that changes nothing at all, and runs whole if not. `output(call)` makes a call in micro-batches."""

    def __init__(
        self, torch: Torch, context: CutContext, division: Division, output: Callable[[CutCall], Tree]
    ) -> None:
        self._torch = torch
        self._context = context
        self._division = division
        self._output = output
        self._plans = KnownPlans(torch, context.settings)

    def forget(self) -> None:
        """Other sizes are cut from now on."""
        self._plans = KnownPlans(self._torch, self._context.settings)

    def cut(self, module: Module, tree: dict[int | str, Any], leaves: Leaves) -> tuple[Tree] | None:
        """The call's output, if it has more rows than a micro-batch and could be cut; else None."""
        sizes = self._context.sizes
        tried = [
            dims
            for dims in candidates(self._torch, leaves, sizes)
            if dims.count > self._division.most(dims.count, sizes)
        ]
        if not tried or not _is_plain(self._torch, tree):
            return None
        key = self._plans.key(module, leaves)
        known, planned = self._plans.find(key, module, leaves, tried)
        try:
            if not known:
                planned = self._plan(module, tree, leaves, tried)
                self._plans.note(key, module, leaves, planned)
            if planned is None:
                return None
            plan, dims = planned
            parts = self._division.groups(
                dims.count, self._division.most(dims.count, sizes), plan, None, False, OneRank()
            )
            assert parts is not None
            reductions = Reductions(self._torch, leaves, dims)
            CallLooks(self._torch, plan, tree, leaves, dims).settle(reductions, parts)
            most_parts = self._context.most_parts
            return (self._output(CutCall(self._torch, plan, tree, leaves, dims, reductions, parts, most_parts)),)
        except WritesWeights as reason:
            self._context.refuse(module, reason)
        except Uncuttable:
            self._plans.note(key, module, leaves, None)
        return None

    def _plan(self, module: Module, tree: Tree, leaves: Leaves, tried: list[BatchDims]) -> Planned:
        plan = Plan(self._torch, module, self._context, tuple(self._context.sizes), leaves, OneRank())
        for dims in tried:
            try:
                looks = CallLooks(self._torch, plan, tree, leaves, dims)
                looks.check_untouched()
                looks.check(self._division.most(dims.count, self._context.sizes))
            except Mismatch:
                continue
            return plan, dims
        return None


def _is_plain(torch: Torch, tree: dict[int | str, Any]) -> bool:
    """Whether nothing in it can be written to by the call, as the cache of a model that generates is."""
    kinds = (torch.Tensor, str, bool, int, float, type(None), list, tuple, Mapping)
    return not tree.get("use_cache") and all(isinstance(value, kinds) for value in tree.values())
