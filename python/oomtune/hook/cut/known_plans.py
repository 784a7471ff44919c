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
    from .settings import ModuleSettings

    #: How a call is cut; None: it runs whole.
    Planned = Optional[Tuple[Plan, BatchDims]]


#: For so many sizes of a module's inputs it is known how they are cut.
MOST_SIZES = 256


class KnownPlans:
    def __init__(self, torch: Torch, settings: ModuleSettings) -> None:
        self._torch = torch
        self._settings = settings
        #: By the module's id and the kind of its inputs: (module, how it is cut).
        self._plans: dict[Any, tuple[weakref.ref[Any], PlansBySize | None]] = {}

    def key(self, module: Module, leaves: Leaves) -> Any:
        """Identifies a kind of call, whatever the sizes of its inputs."""
        grad = self._torch.is_grad_enabled()
        return id(module), module.training, learns(module), grad, _signature(self._torch, leaves)

    def find(self, key: Any, module: Module, leaves: Leaves, tried: list[BatchDims]) -> tuple[bool, Planned]:
        """(whether a call like it was planned before, its plan). Before each call. Not where the script has changed settings since."""
        known = self._plans.get(key)
        settings = self._settings.of(module)
        settings.begin()
        if known is None or known[0]() is not module:
            return False, None
        if known[1] is None:
            return True, None
        if known[1].version != settings.version:
            return False, None
        # By the same dimensions as before: any other one that is as long as a batch is so by chance.
        cut_dims = known[1].dims
        dims = next((dims for dims in tried if dims.dims == cut_dims), None)
        plan = None if dims is None else known[1].find(leaves)
        return (False, None) if dims is None or plan is None else (True, (plan, dims))

    def is_outdated(self, key: Any, module: Module) -> bool:
        """Whether calls like it were cut, and the script has changed settings since."""
        known = self._plans.get(key)
        cut = None if known is None or known[0]() is not module else known[1]
        return cut is not None and cut.version != self._settings.of(module).version

    def note(self, key: Any, module: Module, leaves: Leaves, planned: Planned) -> None:
        known = self._plans.get(key)
        before = None if known is None or known[0]() is not module else known[1]
        found: PlansBySize | None = None
        if planned is not None:
            plan, dims = planned
            settings = self._settings.of(module)
            found = before
            if found is None or found.dims != dims.dims or found.version != settings.version:
                found = PlansBySize(self._torch, dims.dims, settings.version)
            if before is not None and before is not found:
                previous = before.of(leaves)
                if previous is None or before.dims != dims.dims or not plan.like(previous):
                    settings.made_a_difference()
                if previous is not None:
                    plan.follow(previous)
            found.note(leaves, plan)
        self._plans[key] = (weakref.ref(module), found)


class PlansBySize:
    """How calls of one kind are cut, along `dims`. Where an output has several rows for each sample, as many as tokens, say, that holds for
    inputs of the same sizes: for others there may be more rows, in another order."""

    def __init__(self, torch: Torch, dims: Dims, version: int) -> None:
        self._torch = torch
        self.dims = dims
        #: Of the module's settings.
        self.version = version
        #: By the sizes of the inputs, where an output ever had several rows for each sample.
        self._plans: dict[Any, Plan] = {}
        self._flattens = False

    def find(self, leaves: Leaves) -> Plan | None:
        plan = self.of(leaves)
        return plan if plan is not None and plan.has_its_weights() else None

    def of(self, leaves: Leaves) -> Plan | None:
        return self._plans.get(self._sizes(leaves))

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
    if isinstance(leaf, float):
        return float, leaf != 0.0  # a term of the loss that is left out
    kind: Any = type(leaf)  # pyright: ignore[reportUnknownVariableType]
    return kind
