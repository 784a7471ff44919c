"""Sums the gradients of one call's micro-batches, so that autograd gets them once."""

from __future__ import annotations

import functools

from .memory_order import empty_whole, memory_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from ..types import MaybeTensors, Tensor, Torch
    from .plan import Plan
    from .row_group import RowGroup


class Gradients:
    """`inputs`: the whole call's inputs that require gradients."""

    def __init__(self, torch: Torch, plan: Plan, inputs: Sequence[Tensor]) -> None:
        self._torch = torch
        self._plan = plan
        self._whole = inputs
        self._inputs: list[Tensor | None] = [None] * len(inputs)
        self._parameters: list[Tensor | None] = [None] * len(plan.parameters)
        #: Numbers of the parameters whose sum is our own tensor, which may be changed in place.
        self._ours: set[int] = set()
        self._by_backward = plan.accumulates_by_backward()
        self._in_place = self._by_backward and plan.adds_to_grad()
        self._kept: list[tuple[Tensor, Tensor | None]] = []
        # torch 2 runs hooks for autograd.grad(), too.
        self._hooks = HooksAside([] if self._in_place else plan.parameters)

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
        #: By number of each input its first gradient as it comes: `.grad` has the input's memory order.
        came: dict[int, Tensor] = {}
        if self._by_backward:
            for number, start in enumerate(inputs):
                if self._inputs[number] is None:
                    start.register_hook(functools.partial(came.__setitem__, number))
            self._plan.backward(outputs, gradients)
            found = [start.grad for start in inputs]
            for parameter in self._plan.parameters:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    # Added up, they would have the rows of all samples.
                    parameter.grad = parameter.grad.coalesce()
            self._take_over()
        else:
            found = self._plan.gradients(outputs, [*inputs, *self._plan.parameters], gradients)
            for number, gradient in enumerate(found[len(inputs) :]):
                if gradient is not None:
                    self._add_parameter(number, gradient)
        for number, dim in enumerate(dims):
            if found[number] is not None:
                self._add_input(number, found[number], dim, group, came.get(number, found[number]))

    def _take_over(self) -> None:
        """A compiled module may have made the gradients in the memory of a CUDA graph, which its next run writes to."""
        if not self._plan.compiled:
            return
        for number, parameter in enumerate(self._plan.parameters):
            if parameter.grad is not None and number not in self._ours:
                parameter.grad = parameter.grad.clone()
                self._ours.add(number)

    def totals(self) -> MaybeTensors:
        """Gradients of the call's inputs that require them, followed by those of the parameters."""
        if self._by_backward and not self._in_place:
            self._parameters = [parameter.grad for parameter in self._plan.parameters]
        return tuple(self._inputs + self._parameters)

    # backward() sums into `.grad`, as reentrant checkpointing requires, and nothing is in memory twice. Gradients that are
    # there already are set aside meanwhile, and hooks.

    def __enter__(self) -> Gradients:
        self._hooks.__enter__()
        if self._by_backward and not self._in_place:
            self._kept = [(parameter, parameter.grad) for parameter in self._plan.parameters]
            for parameter in self._plan.parameters:
                parameter.grad = None
        return self

    def __exit__(self, *error: object) -> None:
        for parameter, gradient in self._kept:
            parameter.grad = gradient
        self._hooks.__exit__()

    def _add_input(self, number: int, gradient: Tensor, dim: int | None, group: RowGroup, came: Tensor) -> None:
        total = self._inputs[number]
        if dim is None:
            self._inputs[number] = gradient if total is None else total + gradient
            return
        if total is None:
            whole = self._whole[number]
            known = memory_order(self._torch, whole)
            total = self._inputs[number] = empty_whole(self._torch, came, whole.shape, known).zero_()
        group.put(total, dim, gradient)

    def _add_parameter(self, number: int, gradient: Tensor) -> None:
        total = self._parameters[number]
        if total is None:
            self._parameters[number] = gradient.clone() if self._plan.compiled else gradient
        elif number not in self._ours or total.is_sparse or gradient.is_sparse:
            added = total + gradient
            self._parameters[number] = added.coalesce() if added.is_sparse else added
            self._ours.add(number)
        else:
            total.add_(gradient)


class HooksAside:
    """Inside, parameters have no hooks."""

    NAMES = ("_backward_hooks", "_post_accumulate_grad_hooks")

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = parameters
        self._kept: list[tuple[Any, dict[Any, Any]]] = []

    def __enter__(self) -> None:
        for parameter in self._parameters:
            for name in self.NAMES:
                hooks = getattr(parameter, name, None)
                if hooks:
                    self._kept.append((hooks, dict(hooks)))
                    hooks.clear()

    def __exit__(self, *error: object) -> None:
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
