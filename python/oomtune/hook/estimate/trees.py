"""Arguments of operators: tensors in lists, tuples and dictionaries."""

# What they hold can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..types import Tensor, Torch, Tree


def tensors_of(torch: Torch, tree: Tree) -> Iterator[Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from tensors_of(torch, part)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from tensors_of(torch, part)


def with_tensors(torch: Torch, tree: Tree, change: Callable[[Tensor], Any]) -> Tree:
    """The same with change(tensor) in place of each tensor."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
        parts: Any = [with_tensors(torch, part, change) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    if isinstance(tree, dict):
        return {name: with_tensors(torch, part, change) for name, part in tree.items()}
    return tree
