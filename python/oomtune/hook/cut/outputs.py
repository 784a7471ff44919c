"""The whole call's output, made of the outputs of its parts."""

from .joins import Along, Folded
from .refusal import Uncuttable


class Outputs:
    """`weights`: of each folded output, by number, the weight of each part."""

    def __init__(self, torch, joins, layout, parts, weights):
        self._torch = torch
        self._joins = joins
        self._layout = layout
        self._parts = parts
        self._weights = weights
        #: The leaves of the output; None: no part was added yet.
        self.leaves = None

    def add(self, leaves, place):
        """The leaves of one part's output."""
        if len(leaves) != len(self._joins):
            raise Uncuttable("it does not always return the same structure")
        if self.leaves is None:
            self.leaves = self._room(leaves)
        start, stop = self._parts[place]
        for number, (leaf, join) in enumerate(zip(leaves, self._joins)):
            if isinstance(join, Along):
                target = join.slice(self.leaves[number], start, stop)
                if not isinstance(leaf, self._torch.Tensor) or leaf.shape != target.shape:
                    raise Uncuttable("its outputs do not join along the samples")
                target.copy_(leaf)
            elif isinstance(join, Folded):
                weight = self._weights[number][place]
                if weight:
                    self.leaves[number] = self.leaves[number] + leaf * weight

    def _room(self, leaves):
        """Space for the whole output, made after the first part: parts are not kept beside it."""
        room = []
        for leaf, join in zip(leaves, self._joins):
            if isinstance(join, Along):
                shape = list(leaf.shape)
                shape[join.dim] = self._layout.count * join.factor
                room.append(leaf.new_empty(shape))
            elif isinstance(join, Folded):
                room.append(self._torch.zeros_like(leaf) if isinstance(leaf, self._torch.Tensor) else 0.0)
            else:
                room.append(leaf)
        return room

    def stand_in(self, place, other):
        """Rows of the part `other` in place of a part that is not run."""
        start, stop = self._parts[place]
        first, last = self._parts[other]
        length = min(stop - start, last - first)
        for leaf, join in zip(self.leaves, self._joins):
            if isinstance(join, Along):
                join.slice(leaf, start, stop).zero_()
                join.slice(leaf, start, start + length).copy_(join.slice(leaf, first, first + length))
