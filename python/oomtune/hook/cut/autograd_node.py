"""The autograd node of a cut call."""

from __future__ import annotations

import weakref

from .derivative import Derivative, Values, derivative_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Torch, Tree
    from .cut_call import CutCall


class AutogradNodes:
    """Makes each cut call a single node of the graph."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: The torch.autograd.Function; None: not made yet.
        self._function: Any = None
        #: The latest call: only it may keep activations.
        self._latest: weakref.ref[CutCall] | None = None

    def output(self, call: CutCall) -> Tree:
        """The output that the module would return."""
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
            before.release()  # the activations of one micro-batch only, however often a step calls models
        results: list[list[Any]] = []
        tensors = iter(self._function.apply(call, plan.differentiable, results, *call.inputs, *plan.parameters))
        return call.built([next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in results.pop()])


def _function(torch: Torch) -> Any:
    """Made when torch is imported. Its inputs are the module's inputs and parameters, so that their hooks, exchanges between
    ranks and torch.autograd.grad see one gradient, as without the cut."""

    class CutCallFunction(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, call: CutCall, differentiable: list[bool], results: list[list[Any]], *tensors: Any
        ) -> Any:
            leaves = call.forward()
            results.append(leaves)
            ctx.call = call
            ctx.differentiable = differentiable
            ctx.set_materialize_grads(False)
            ctx.numbers = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            ctx.count = len(leaves)
            ctx.mark_non_differentiable(*[leaves[number] for number in ctx.numbers if not differentiable[number]])
            return tuple(leaves[number] for number in ctx.numbers)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if all(gradient is None for gradient in gradients):
                # Of a call that takes no part in what is differentiated: it gave its output to a module that detaches it by itself, say. It may
                # have had its own backward pass before.
                return (None,) * len(ctx.needs_input_grad)
            wanted = [None] * ctx.count
            for number, gradient in zip(ctx.numbers, gradients):
                wanted[number] = gradient
            call: CutCall | None = ctx.call
            if call is None:
                raise RuntimeError(
                    "Trying to backward through the graph a second time: specify retain_graph=True where the graph is needed again."
                )
            again = torch.is_grad_enabled()
            found = node(Derivative(torch, Values(torch, call), wanted)) if again else call.backward(wanted)
            asked = [number for number in ctx.numbers if ctx.differentiable[number]]
            if all(wanted[number] is not None for number in asked) and not keeps_graph():
                ctx.call = None  # the script's loss holds this node until the next one is made, and would hold the batch so long
            return (None, None, None, *found)

    node = derivative_node(torch)
    # torch before 2.1 does not tell.
    keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
    return CutCallFunction
