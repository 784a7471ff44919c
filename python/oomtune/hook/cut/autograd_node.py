"""The cut call's place in autograd's graph."""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch, Tree
    from .cut_call import CutCall


class AutogradNodes:
    """Makes one node of the graph of each call that is cut."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: The autograd function.
        self._function: Any = None
        #: The call that may keep activations.
        self._latest: weakref.ref[CutCall] | None = None

    def output(self, call: CutCall) -> Tree:
        """What the module would return."""
        torch = self._torch
        plan = call.plan
        if not any(plan.differentiable):
            with torch.no_grad():
                return call.built(call.forward())
        if self._function is None:
            self._function = _function(torch)
        before = None if self._latest is None else self._latest()
        self._latest = weakref.ref(call)
        if before is not None:
            before.release()  # one micro-batch's activations at a time, however often a step calls models
        results: list[list[Any]] = []
        tensors = iter(self._function.apply(call, plan.differentiable, results, *call.inputs, *plan.parameters))
        return call.built([next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in results.pop()])


def _function(torch: Torch) -> Any:
    """Made once torch is there. Its inputs are the module's inputs and parameters: hooks on those, exchanges between ranks and
    torch.autograd.grad see one gradient, as without the cut."""

    class CutCallFunction(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, call: CutCall, differentiable: list[bool], results: list[list[Any]], *tensors: Any
        ) -> Any:
            leaves = call.forward()
            results.append(leaves)
            ctx.call = call
            ctx.set_materialize_grads(False)
            ctx.places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            ctx.count = len(leaves)
            ctx.mark_non_differentiable(*[leaves[number] for number in ctx.places if not differentiable[number]])
            return tuple(leaves[number] for number in ctx.places)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            wanted = [None] * ctx.count
            for number, gradient in zip(ctx.places, gradients):
                wanted[number] = gradient
            return (None, None, None, *ctx.call.backward(wanted, torch.is_grad_enabled()))

    return CutCallFunction
