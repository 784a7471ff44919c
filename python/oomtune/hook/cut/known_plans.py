"""How calls were cut before, by the kind of their inputs."""

from __future__ import annotations

import weakref

from ..watch.models import learns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from ..types import Leaves, Module, Torch
    from .batch_dims import BatchDims, Dims
    from .plan import Plan

    #: How a call is cut; None: it runs whole.
    Planned = Optional[Tuple[Plan, BatchDims]]


#: For so many sizes of a module's inputs it is known how they are cut.
MOST_SIZES = 256


class KnownPlans:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: By the module's id and the kind of its inputs: (module, how it is cut).
        self._plans: dict[Any, tuple[weakref.ref[Any], PlansBySize | None]] = {}

    def key(self, module: Module, leaves: Leaves) -> Any:
        """Identifies a kind of call, whatever the sizes of its inputs."""
        grad = self._torch.is_grad_enabled()
        return id(module), module.training, learns(module), grad, _signature(self._torch, leaves)

    def find(self, key: Any, module: Module, leaves: Leaves, tried: list[BatchDims]) -> tuple[bool, Planned]:
        """(whether a call like it was planned before, its plan)."""
        known = self._plans.get(key)
        if known is None or known[0]() is not module:
            return False, None
        if known[1] is None:
            return True, None
        # By the same dimensions as before: any other one that is as long as a batch is so by chance.
        cut_dims = known[1].dims
        dims = next((dims for dims in tried if dims.dims == cut_dims), None)
        plan = None if dims is None else known[1].find(leaves)
        return (False, None) if dims is None or plan is None else (True, (plan, dims))

    def note(self, key: Any, module: Module, leaves: Leaves, planned: Planned) -> None:
        known = self._plans.get(key)
        found = None if known is None or known[0]() is not module else known[1]
        if planned is None:
            found = None
        else:
            plan, dims = planned
            found = PlansBySize(self._torch, dims.dims) if found is None or found.dims != dims.dims else found
            found.note(leaves, plan)
        self._plans[key] = (weakref.ref(module), found)


class PlansBySize:
    """How calls of one kind are cut, along `dims`. Where an output has several rows for each sample, as many as tokens, say, that holds for
    inputs of the same sizes: for others there may be more rows, in another order."""

    def __init__(self, torch: Torch, dims: Dims) -> None:
        self._torch = torch
        self.dims = dims
        #: By the sizes of the inputs, where an output ever had several rows for each sample.
        self._plans: dict[Any, Plan] = {}
        self._flattens = False

    def find(self, leaves: Leaves) -> Plan | None:
        plan = self._plans.get(self._sizes(leaves))
        return plan if plan is not None and plan.has_its_weights() else None

    def note(self, leaves: Leaves, plan: Plan) -> None:
        self._flattens = self._flattens or plan.flattens()
        if len(self._plans) == MOST_SIZES:
            del self._plans[next(iter(self._plans))]
        self._plans[self._sizes(leaves)] = plan

    def _sizes(self, leaves: Leaves) -> Any:
        """Those of the dimensions that are not cut."""
        if not self._flattens:
            return None
        shapes = [tuple(leaf.shape) if isinstance(leaf, self._torch.Tensor) else () for leaf in leaves]
        return tuple(shape if dim is None else (shape[:dim], shape[dim + 1 :]) for shape, dim in zip(shapes, self.dims))


def _signature(torch: Torch, leaves: Leaves) -> tuple[Any, ...]:
    """Identifies a kind of inputs, whatever their sizes."""
    return tuple(
        (leaf.dim(), leaf.dtype, leaf.requires_grad) if isinstance(leaf, torch.Tensor) else _kind(leaf)
        for leaf in leaves
    )


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, (str, bool, int, type(None))):
        return leaf
    kind: Any = type(leaf)  # pyright: ignore[reportUnknownVariableType]
    return kind
