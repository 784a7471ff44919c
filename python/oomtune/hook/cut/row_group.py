"""The samples of one micro-batch."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence, Tuple

    from ..types import Tensor, Torch

    #: Tokens of each row that run: (first, how many); None: all of them, padding included.
    Window = Optional[Tuple[int, int]]


class RowGroup:
    """`rows`: their numbers in the batch; a range if they follow one another, which needs no copy of them."""

    def __init__(self, torch: Torch, rows: Sequence[int], window: Window = None) -> None:
        self._torch = torch
        self.rows = rows
        self.window = window
        self._indices: dict[tuple[Any, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, tensor: Tensor, dim: int, factor: int = 1) -> Tensor:
        """The group's part of a tensor that has `factor` rows for each sample along `dim`."""
        rows = self.rows
        if isinstance(rows, range):
            return tensor.narrow(dim, rows.start * factor, len(rows) * factor)
        return tensor.index_select(dim, self.indices(tensor.device, factor))

    def put(self, target: Tensor, dim: int, value: Tensor, factor: int = 1) -> None:
        """Writes the group's part of a tensor."""
        if isinstance(self.rows, range):
            self.of(target, dim, factor).copy_(value)
        else:
            target.index_copy_(dim, self.indices(target.device, factor), value)

    def indices(self, device: Any, factor: int = 1) -> Tensor:
        known = self._indices.get((device, factor))
        if known is None:
            rows = [row * factor + view for row in self.rows for view in range(factor)]
            known = self._indices[device, factor] = self._torch.tensor(rows, device=device)
        return known
