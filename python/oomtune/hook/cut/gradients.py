"""Sums the gradients of one call's micro-batches, so that autograd gets them once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ..types import MaybeTensors, Tensor, Torch
    from .plan import Plan
    from .row_group import RowGroup


class Gradients:
    """`inputs`: the whole call's inputs that require gradients; `create_graph`: second derivatives are needed."""

    def __init__(self, torch: Torch, plan: Plan, inputs: Sequence[Tensor], create_graph: bool) -> None:
        self._torch = torch
        self._plan = plan
        self._whole = inputs
        self._inputs: list[Tensor | None] = [None] * len(inputs)
        self._parameters: list[Tensor | None] = [None] * len(plan.parameters)
        #: Numbers of the parameters whose sum is our own tensor, which may be changed in place.
        self._ours: set[int] = set()
        self._create_graph = create_graph
        self._by_backward = plan.accumulates_by_backward() and not create_graph
        self._in_place = self._by_backward and plan.adds_to_grad()
        self._kept: list[tuple[Tensor, Tensor | None]] = []
        self._hooks: list[_HooksAside] = []

    def add(
        self,
        outputs: list[Tensor],
        gradients: list[Tensor],
        inputs: Sequence[Tensor],
        dims: Sequence[int | None],
        group: RowGroup,
    ) -> None:
        """Runs one micro-batch backward: `gradients` of its `outputs`, to its `inputs`, which were cut along `dims`."""
        found: Sequence[Any]
        if self._by_backward:
            self._plan.backward(outputs, gradients)
            found = [start.grad for start in inputs]
        else:
            found = self._plan.gradients(outputs, [*inputs, *self._plan.parameters], gradients, self._create_graph)
            for number, gradient in enumerate(found[len(inputs) :]):
                if gradient is not None:
                    self._add_parameter(number, gradient)
        for number, dim in enumerate(dims):
            if found[number] is not None:
                self._add_input(number, found[number], dim, group)

    def totals(self) -> MaybeTensors:
        """Gradients of the call's inputs that require them, followed by those of the parameters."""
        if self._by_backward and not self._in_place:
            self._parameters = [parameter.grad for parameter in self._plan.parameters]
        return tuple(self._inputs + self._parameters)

    # backward() sums into `.grad`, as reentrant checkpointing requires, and nothing is in memory twice. Gradients that are
    # there already are set aside meanwhile, and hooks.

    def __enter__(self) -> Gradients:
        if not self._in_place:
            # torch 2 runs hooks for autograd.grad(), too.
            self._hooks = [_HooksAside(parameter) for parameter in self._plan.parameters]
        if self._by_backward and not self._in_place:
            self._kept = [(parameter, parameter.grad) for parameter in self._plan.parameters]
            for parameter in self._plan.parameters:
                parameter.grad = None
        return self

    def __exit__(self, *error: object) -> None:
        for parameter, gradient in self._kept:
            parameter.grad = gradient
        for hook in self._hooks:
            hook.restore()

    def _add_input(self, number: int, gradient: Tensor, dim: int | None, group: RowGroup) -> None:
        total = self._inputs[number]
        if dim is not None and not self._create_graph:
            if total is None:
                total = self._inputs[number] = self._torch.zeros_like(self._whole[number])
            group.put(total, dim, gradient)
            return
        if dim is not None:
            whole = self._torch.zeros_like(self._whole[number])
            gradient = whole.index_add(dim, group.indices(gradient.device), gradient)
        self._inputs[number] = gradient if total is None else total + gradient

    def _add_parameter(self, number: int, gradient: Tensor) -> None:
        total = self._parameters[number]
        if total is None:
            self._parameters[number] = gradient
        elif self._create_graph or number not in self._ours or total.is_sparse or gradient.is_sparse:
            self._parameters[number] = total + gradient
            self._ours.add(number)
        else:
            total.add_(gradient)


class _HooksAside:
    """Removes a parameter's hooks until restore()."""

    NAMES = ("_backward_hooks", "_post_accumulate_grad_hooks")

    def __init__(self, parameter: Tensor) -> None:
        self._kept: list[tuple[Any, dict[Any, Any]]] = []
        for name in self.NAMES:
            hooks = getattr(parameter, name, None)
            if hooks:
                self._kept.append((hooks, dict(hooks)))
                hooks.clear()

    def restore(self) -> None:
        for hooks, items in self._kept:
            hooks.update(items)


def scaled(gradients: MaybeTensors, factor: Tensor) -> MaybeTensors:
    """The gradients, multiplied by a tensor of one element."""
    factors: dict[Any, Tensor] = {}

    def product(gradient: Tensor) -> Tensor:
        device = gradient.device
        if device not in factors:
            factors[device] = factor.reshape(()).to(device)
        return gradient * factors[device] if gradient.is_sparse else gradient.mul_(factors[device])

    return tuple(None if gradient is None else product(gradient) for gradient in gradients)
