"""Resizes the tensors of the script's own batch to the rows that a probe asks for: slices them, or repeats rows."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false

from __future__ import annotations

import weakref

from ..cut.pytree import SampleList, tree_leaves, tree_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Tensor, Torch


class BatchResizer:
    """For one batch of the script at a time: `own` rows as the script made it, `wanted` rows as the model gets it. Each tensor
    is resized once, and the copy lives as long as the batch."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: The dimension that counts the samples.
        self.dim = 0
        self.own = self.wanted = 1
        #: Rows of earlier batches.
        self._before: set[int] = set()
        self._made: dict[int, tuple[weakref.ref[Any], int, Tensor]] = {}

    def begin(self, own: int, wanted: int) -> None:
        """Starts with a new batch of the script."""
        self._before |= {self.own, self.wanted}
        self.own, self.wanted = own, wanted
        self._made = {}

    @property
    def differs(self) -> bool:
        return self.own != self.wanted

    def rows_of(self, tree: Any) -> int | None:
        """Rows of a model's inputs, by their first tensor; None: there is no tensor."""
        lengths: list[int] = []

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, self._torch.Tensor) and leaf.dim() > self.dim:
                lengths.append(int(leaf.shape[self.dim]))
            return leaf

        tree_map(self._torch, tree, visit)
        return lengths[0] if lengths else None

    def is_single(self, tree: Any) -> bool:
        """Whether a model's inputs are one row."""
        tensors = (leaf for leaf in tree_leaves(self._torch, tree) if isinstance(leaf, self._torch.Tensor))
        return all(leaf.shape[self.dim] == 1 for leaf in tensors if leaf.dim() > self.dim)

    def has_no_rows(self, tree: Any) -> bool:
        """Whether a model's inputs may be one sample without a dimension for samples: numbers that are no indices, in one dimension at most."""
        tensors = [leaf for leaf in tree_leaves(self._torch, tree) if isinstance(leaf, self._torch.Tensor)]
        return bool(tensors) and all(leaf.dim() < 2 and leaf.is_floating_point() for leaf in tensors)

    def may_be_sequences(self, tree: Any) -> bool:
        """Whether a model's first tensor may have sequences, of numbers of tokens or of features: no rows of features, nor images."""
        tensors = (
            leaf for leaf in tree_leaves(self._torch, tree) if isinstance(leaf, self._torch.Tensor) and leaf.dim()
        )
        first: Any = next(tensors, None)
        return first is not None and first.dim() == (3 if first.is_floating_point() else 2)

    def fits(self, tree: Any, rows: int) -> bool:
        """Whether each of a model's inputs has `rows` rows, or is no per-sample input (a mask between positions). False for a
        graph with its edges."""
        found: list[bool] = []

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, self._torch.Tensor) and leaf.dim() > 1:
                shape = tuple(leaf.shape)
                found.append(rows in shape[:2] or shape[0] == 1 or shape[-1] == shape[-2])
            return leaf

        tree_map(self._torch, tree, visit)
        return all(found)

    def inputs(self, tree: Any, views: int = 1) -> Any:
        """The inputs with `wanted` rows in place of `own`. `views`: rows per sample."""
        own, wanted = self.own * views, self.wanted * views

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, SampleList):
                return type(leaf.items)(leaf.items[index % own] for index in range(wanted))
            if not isinstance(leaf, self._torch.Tensor):
                return leaf
            dim = self._dim(leaf, own, wanted)
            return leaf if dim is None else self.tensor(leaf, dim, wanted)

        return tree_map(self._torch, tree, visit, (own,))

    def _dim(self, leaf: Tensor, own: int, wanted: int) -> int | None:
        """The dimension to resize; None: no dimension has the script's rows, or one has the probe's already."""
        for dim in (self.dim, 1 - self.dim):
            length = leaf.shape[dim] if leaf.dim() > dim else None
            if length == wanted and (wanted != 1 or own == 1 or not self._may_be_layers(leaf)):
                return None
            if length == own:
                return dim
        return self._state(leaf)

    def _may_be_layers(self, leaf: Tensor) -> bool:
        """Whether a first dimension of 1 may be the one layer of a hidden state, (layers, samples, features), instead of one row. Not
        where a module has made the tensor in this step, of one row: its features may be as many as the script's rows."""
        if leaf.dim() != 3:
            return False
        # A state that is learned is its weights, expanded.
        parents = () if leaf.grad_fn is None else leaf.grad_fn.next_functions
        return all(parent is None or hasattr(parent, "variable") for parent, _ in parents)

    def _state(self, leaf: Tensor) -> int | None:
        """The dimension to resize in a hidden state with the rows of an earlier batch: (samples, features) or (layers, samples, features)."""
        if not leaf.is_floating_point() or leaf.dim() not in (2, 3):
            return None
        dim = self.dim if leaf.dim() == 2 else 1
        return dim if leaf.shape[dim] in self._before else None

    def tensor(self, tensor: Tensor, dim: int, count: int) -> Tensor:
        """The tensor with `count` rows: its first ones, or all of them repeated in turn."""
        known = self._made.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == dim and known[2].shape[dim] == count:
            return known[2]
        torch, have = self._torch, tensor.shape[dim]
        if have == 0:
            made = tensor.new_zeros([count if axis == dim else length for axis, length in enumerate(tensor.shape)])
        elif have >= count and dim == 0:
            made = tensor.narrow(0, 0, count)
        else:
            made = tensor.index_select(dim, torch.arange(count, device=tensor.device) % have)
        self._made[id(tensor)] = (weakref.ref(tensor), dim, made)
        return made
