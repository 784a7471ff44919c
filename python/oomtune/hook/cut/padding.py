"""How long the samples of one call are, and which of its inputs are only padding beyond that."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Tuple

    from ..types import Leaves, Module, Tensor, Torch, Tree
    from .row_group import Window

    #: (on the left, by number of each input that is cut with the mask: what its padding is filled with; None: anything)
    PaddingKind = Tuple[bool, Tuple[Tuple[int, Any], ...]]

#: Inputs whose padding the mask hides, whatever is in it; that of others (labels) has to be one value.
HIDDEN = ("ids", "mask")


class Padding:
    """`lengths`: of each row, without its padding; `width`: with it. `left`: the padding comes first. `filled`: by number of
    each input as wide as the mask, what its padding is filled with; None: the mask hides it."""

    def __init__(self, lengths: list[int], width: int, left: bool, filled: dict[int, Any]) -> None:
        self.lengths = lengths
        self.width = width
        self.left = left
        self.filled = filled

    @property
    def kind(self) -> PaddingKind:
        """What a proof that the padding can be left out holds for."""
        return self.left, tuple(sorted(self.filled.items()))

    def window(self, rows: Iterable[int]) -> Window:
        """The tokens that are left of some rows."""
        length = max(self.lengths[row] for row in rows)
        return None if length == self.width else (self.width - length if self.left else 0, length)


def read_padding(torch: Torch, module: Module, tree: Tree, leaves: Leaves) -> Padding | None:
    """None: the inputs do not tell how long their samples are. Waits for the device once."""
    names = _names(module, tree)
    found = [(number, names.get(id(leaf), ""), leaf) for number, leaf in enumerate(leaves)]
    tensors = [(number, name, leaf) for number, name, leaf in found if isinstance(leaf, torch.Tensor)]
    mask = next((each for each in tensors if _is_mask(each[1], each[2])), None)
    if mask is None:
        return _of_lengths(torch, tensors)
    number, name, leaf = mask
    real = leaf == 0 if "padding_mask" in name else leaf != 0
    plain = ((leaf == 0) | (leaf == 1)).all()
    return _read(torch, tensors, real, plain, number)


def _of_lengths(torch: Torch, tensors: list[tuple[int, str, Tensor]]) -> Padding | None:
    """The padding where the script hands over the lengths themselves."""
    of_rows = [
        leaf for _, name, leaf in tensors if "length" in name and leaf.dim() == 1 and not leaf.is_floating_point()
    ]
    wide = [leaf for _, _, leaf in tensors if leaf.dim() > 1]
    if len(of_rows) != 1 or not wide or wide[0].shape[0] != of_rows[0].shape[0]:
        return None
    places = torch.arange(wide[0].shape[1], device=wide[0].device)
    real = places < of_rows[0].to(wide[0].device)[:, None]
    return _read(torch, tensors, real, (of_rows[0] <= wide[0].shape[1]).all(), None)


def _read(
    torch: Torch, tensors: list[tuple[int, str, Tensor]], real: Tensor, plain: Tensor, mask: int | None
) -> Padding | None:
    width = real.shape[1]
    lengths = real.sum(1)
    places = torch.arange(width, device=real.device)
    right = (real == (places < lengths[:, None])).all()
    left = (real == (places >= width - lengths[:, None])).all()
    wide = [
        each
        for each in tensors
        if each[2].dim() > 1 and each[2].shape[:2] == real.shape and not each[1].startswith("decoder")
    ]
    told = [each for each in wide if each[0] != mask and not _hidden(each[1], each[2])]
    figures = [plain, right, left]
    largest = torch.iinfo(torch.long).max
    for _, _, leaf in told:
        padded = leaf.reshape(leaf.shape[0], width, -1).long()
        kept = real.to(leaf.device)[:, :, None]
        figures += [padded.masked_fill(kept, largest).amin(), padded.masked_fill(kept, -largest).amax()]
    values = torch.cat([lengths, torch.stack([figure.long().to(real.device) for figure in figures])]).tolist()
    rows, values = values[: len(real)], values[len(real) :]
    if not values[0] or not (values[1] or values[2]):
        return None
    lowest, highest = values[3::2], values[4::2]
    filled: dict[int, Any] = {number: None for number, _, _ in wide}
    for (number, _, _), low, high in zip(told, lowest, highest):
        if low == high:
            filled[number] = low
        elif low < high:
            del filled[number]  # something is in it, which may count
    return Padding([max(1, length) for length in rows], width, not values[1], filled)


def _is_mask(name: str, leaf: Tensor) -> bool:
    if leaf.dim() != 2 or "mask" not in name or name.startswith(("decoder", "cross", "head", "encoder")):
        return False
    return not leaf.is_complex()


def _hidden(name: str, leaf: Tensor) -> bool:
    return leaf.is_floating_point() or name.endswith(HIDDEN)


def _names(module: Module, tree: Any) -> dict[int, str]:
    """By id, what the module calls its inputs."""
    names: dict[int, str] = {}
    positional = _positional(type(module))
    for key, value in tree.items():
        name = key if isinstance(key, str) else positional[key] if key < len(positional) else ""
        names[id(value)] = name
        if isinstance(value, Mapping):
            names.update({id(inner): str(own) for own, inner in value.items()})
    return names


@functools.lru_cache(maxsize=64)
def _positional(kind: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(kind.forward).parameters)[1:]
    except (TypeError, ValueError):
        return ()
