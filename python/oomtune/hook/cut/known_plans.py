"""How calls were cut before, by the kind of their inputs."""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from ..types import Leaves, Module, Torch
    from .batch_dims import BatchDims, Dims
    from .plan import Plan

    #: How a call is cut; None: it runs whole.
    Planned = Optional[Tuple[Plan, BatchDims]]


class KnownPlans:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: By the module's id and the kind of its inputs: (module, how it is cut).
        self._plans: dict[Any, tuple[weakref.ref[Any], tuple[Plan, Dims] | None]] = {}

    def key(self, module: Module, leaves: Leaves) -> Any:
        """Identifies a kind of call, whatever the sizes of its inputs."""
        return id(module), module.training, self._torch.is_grad_enabled(), _signature(self._torch, leaves)

    def find(self, key: Any, module: Module, tried: list[BatchDims]) -> tuple[bool, Planned]:
        """(whether a call like it was planned before, its plan)."""
        known = self._plans.get(key)
        if known is None or known[0]() is not module:
            return False, None
        if known[1] is None:
            return True, None
        plan, cut_dims = known[1]
        if not plan.has_its_weights():
            return False, None
        # By the same dimensions as before: any other one that is as long as a batch is so by chance.
        dims = next((dims for dims in tried if dims.dims == cut_dims), None)
        return (False, None) if dims is None else (True, (plan, dims))

    def note(self, key: Any, module: Module, planned: Planned) -> None:
        self._plans[key] = (weakref.ref(module), None if planned is None else (planned[0], planned[1].dims))


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
