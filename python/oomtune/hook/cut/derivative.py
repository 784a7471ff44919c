"""Gradients that are differentiated again: a gradient penalty, a differential equation. The gradients of a cut call are a function of what is
given for its outputs, of its inputs and of its weights. As such they are cut into the call's micro-batches themselves, and so are theirs: the
graph of one micro-batch is in memory at a time, whatever the order."""

from __future__ import annotations

import contextlib

from .memory_order import empty_whole, memory_order
from .outputs import Concatenated, Constant, WeightedSum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Union

    from ..types import Call, Tensor, Torch
    from .cut_call import CutCall
    from .row_group import RowGroup

    Tensors = List[Optional[Tensor]]
    Kind = Union["Rows", "Whole", "Weight"]
    Function = Union["Values", "Derivative"]


class Rows:
    """A tensor with rows for each sample. `of(tensor, group)`: a micro-batch's; `put(total, group, value)` writes them."""

    def __init__(
        self, torch: Torch, of: Callable[[Tensor, RowGroup], Tensor], put: Callable[[Tensor, RowGroup, Tensor], None]
    ) -> None:
        self._torch = torch
        self._of = of
        self._put = put

    def part(self, tensor: Tensor, group: RowGroup) -> Tensor:
        """What a micro-batch has of it, as the start of a graph."""
        return self._of(tensor, group).detach().requires_grad_()

    def added(self, total: Tensor | None, value: Tensor, group: RowGroup, whole: Tensor) -> Tensor:
        """The gradient of the `whole`, with a micro-batch's."""
        if total is None:
            total = empty_whole(self._torch, value, whole.shape, memory_order(self._torch, whole)).zero_()
        self._put(total, group, value)
        return total


class Whole:
    """A tensor that all micro-batches have whole."""

    def part(self, tensor: Tensor, group: RowGroup) -> Tensor:
        return tensor.detach().requires_grad_()

    def added(self, total: Tensor | None, value: Tensor, group: RowGroup, whole: Tensor) -> Tensor:
        return value if total is None else total + value


class Weight(Whole):
    """A parameter, which the module takes by itself."""

    def part(self, tensor: Tensor, group: RowGroup) -> Tensor:
        return tensor


class Values:
    """What a cut call returns, as a function of its inputs that learn and of its weights."""

    def __init__(self, torch: Torch, call: CutCall) -> None:
        self._torch = torch
        self.call = call
        self.inputs: list[Tensor] = [*call.inputs, *call.plan.parameters]
        dims = [call.dims.dims[number] for number in call.numbers]
        self.kinds: list[Kind] = [Whole() if dim is None else self._input(dim) for dim in dims]
        self.kinds += [Weight() for _ in call.plan.parameters]
        #: By number of each output.
        self.of_outputs: list[Kind] = [
            self._output(number, join) if isinstance(join, Concatenated) else Whole()
            for number, join in enumerate(call.plan.joins)
        ]

    def _input(self, dim: int) -> Rows:
        dims = self.call.dims
        return Rows(
            self._torch,
            lambda tensor, group: dims.part(tensor, dim, group),
            lambda total, group, value: group.put(total, dim, value),
        )

    def _output(self, number: int, join: Concatenated) -> Rows:
        call = self.call

        def put(total: Tensor, group: RowGroup, value: Tensor) -> None:
            join.put(call.unpadded(total, number, group), group, value)

        return Rows(self._torch, lambda tensor, group: call.given(tensor, number, join, group), put)

    def of(self, index: int, tensors: Sequence[Tensor]) -> Tensors:
        """Of one micro-batch, with its graph: its rows of an output, or its share of a sum; None: it has no part in it."""
        call = self.call
        leaves = call.leaves_of(index, dict(zip(call.numbers, tensors)))
        return [
            None
            if isinstance(join, Constant) or not getattr(leaf, "requires_grad", False)
            else leaf * call.weights[number][index]
            if isinstance(join, WeightedSum)
            else leaf
            for number, (leaf, join) in enumerate(zip(leaves, call.plan.joins))
        ]


class Derivative:
    """The gradients of a function, given those of its outputs (None: no gradient): of each of its inputs."""

    def __init__(self, torch: Torch, function: Function, given: Sequence[Tensor | None]) -> None:
        self._torch = torch
        self._function = function
        self.call: CutCall = function.call
        self._asked = [number for number, gradient in enumerate(given) if gradient is not None]
        self.inputs: list[Tensor] = [given[number] for number in self._asked] + function.inputs
        self.kinds: list[Kind] = [function.of_outputs[number] for number in self._asked] + function.kinds
        self.of_outputs = function.kinds

    def of(self, index: int, tensors: Sequence[Tensor], create_graph: bool = True) -> Tensors:
        """Of one micro-batch."""
        count = len(self._asked)
        given, own = tensors[:count], tensors[count:]
        values = self._function.of(index, own)
        told = [(values[number], gradient) for number, gradient in zip(self._asked, given)]
        told = [(value, gradient) for value, gradient in told if value is not None and value.requires_grad]
        if not told:
            return [None] * len(own)
        return list(
            self._torch.autograd.grad(
                [value for value, _ in told],
                own,
                [gradient.to(value.dtype) for value, gradient in told],
                allow_unused=True,
                create_graph=create_graph,
            )
        )

    def total(self) -> tuple[Tensor | None, ...]:
        """Of all micro-batches."""
        wholes = self._function.inputs
        found: Tensors = [None] * len(wholes)
        with contextlib.closing(self.call.again()) as micro_batches:
            for index, group in micro_batches:
                with self._torch.enable_grad():
                    parts = [kind.part(tensor, group) for kind, tensor in zip(self.kinds, self.inputs)]
                    values = self.of(index, parts, create_graph=False)
                for number, value in enumerate(values):
                    if value is not None:
                        kind = self.of_outputs[number]
                        found[number] = kind.added(found[number], value.detach(), group, wholes[number])
        return tuple(found)


def derivative_node(torch: Torch) -> Call:
    """A function that returns the total() of a Derivative, as a node of autograd's graph."""

    class DerivativeFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, derivative: Derivative, *tensors: Any) -> Any:
            ctx.derivative = derivative
            ctx.set_materialize_grads(False)
            return derivative.total()

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            derivative = Derivative(torch, ctx.derivative, given)
            return (None, *(node(derivative) if torch.is_grad_enabled() else derivative.total()))

    def node(derivative: Derivative) -> Any:
        return DerivativeFunction.apply(derivative, *derivative.inputs)

    return node
