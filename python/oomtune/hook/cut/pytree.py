"""A module's inputs and outputs as nested structures: maps over their leaves and rebuilds the containers."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import copy
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection

    from ..types import Leaves, Torch, Tree

#: How deep the fields of objects are followed.
DEPTH = 4

_NONE = object()
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


class SampleList:
    """A list with one entry per sample (texts, images of many sizes): a leaf that can be cut."""

    def __init__(self, items: Any) -> None:
        #: A list or tuple, perhaps of the script's own class.
        self.items = items


def tree_map(
    torch: Torch,
    tree: Tree,
    visit: Callable[[Any], Any],
    lengths: Collection[int] = (),
    depth: int = DEPTH,
    above: tuple[int, ...] = (),
) -> Tree:
    """The same structure with visit(leaf) in place of each leaf. Leaves are tensors, plain values, and lists of one of the
    `lengths`, which are visited as SampleList, and what the tree is itself in, whose ids `above` has."""
    if isinstance(tree, (torch.Tensor, *_PLAIN)) or id(tree) in above:
        return visit(tree)

    def inner(value: Tree, depth: int = depth) -> Tree:
        return tree_map(torch, value, visit, lengths, depth, (*above, id(tree)))

    if isinstance(tree, Mapping):
        twin = _mapping(tree, {key: inner(value) for key, value in tree.items()})
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        twin = type(tree)(*(inner(value) for value in tree))
    elif isinstance(tree, (list, tuple)):
        if len(tree) in lengths and len(tree) > 1 and _one_each(torch, tree):
            return visit(SampleList(tree))
        twin = _sequence(tree, [inner(value) for value in tree])
    else:
        return _object(tree, visit, inner, depth)
    own = getattr(twin, "__dict__", {})
    for name, value in _attributes(tree).items() if depth else ():
        mapped = inner(value, depth - 1)
        if name in own:
            own[name] = mapped  # (a property of the same name may refuse it)
        else:
            object.__setattr__(twin, name, mapped)
    return twin


def _object(tree: Tree, visit: Callable[[Any], Any], inner: Callable[[Tree, int], Tree], depth: int) -> Tree:
    fields = _fields(tree) if depth else None
    if not fields:
        return visit(tree)
    mapped = {name: inner(value, depth - 1) for name, value in fields.items()}
    if all(value is fields[name] for name, value in mapped.items()):
        return tree
    twin = copy.copy(tree)
    for name, value in mapped.items():
        object.__setattr__(twin, name, value)
    return twin


def tree_leaves(torch: Torch, tree: Tree, lengths: Collection[int] = ()) -> Leaves:
    found: Leaves = []

    def visit(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    tree_map(torch, tree, visit, lengths)
    return found


def tree_with(torch: Torch, tree: Tree, leaves: Leaves, lengths: Collection[int] = ()) -> Tree:
    """The structure of `tree` with these leaves, in the order of tree_leaves()."""
    source = iter(leaves)
    return tree_map(torch, tree, lambda _: next(source), lengths)


def has_packed(torch: Torch, tree: Tree) -> bool:
    """Whether there is a PackedSequence in it, whose rows are the tokens of all samples in turn."""
    if isinstance(tree, torch.nn.utils.rnn.PackedSequence):
        return True
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    return any(has_packed(torch, each) for each in inner)


def _one_each(torch: Torch, items: Any) -> bool:
    """Whether a list may have an entry per sample: of one type, and not tensors that each have a row per sample."""
    if len({type(item) for item in items}) > 1 or items[0] is None:
        return False
    batches = (isinstance(item, torch.Tensor) and item.dim() > 0 and item.shape[0] == len(items) for item in items)
    return not all(batches)


def _attributes(tree: Any) -> dict[str, Any]:
    """What a list, tuple or dictionary of the script's own class has besides its entries."""
    kind: Any = type(tree)
    if kind in (list, tuple, dict) or not isinstance(tree, (list, tuple, dict)):
        return {}
    found = dict(getattr(tree, "__dict__", {}))
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        found.update((name, getattr(tree, name)) for name in _names(slots) if hasattr(tree, name))
    # (transformers' ModelOutput has its entries as attributes, too, and sets both)
    entries = tree if isinstance(tree, dict) else {}
    return {name: value for name, value in found.items() if entries.get(name, _NONE) is not value}


def _names(slots: Any) -> list[str]:
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if not name.startswith("__")]


def _sequence(tree: Any, items: list[Any]) -> Any:
    if type(tree) is list:
        return items
    if isinstance(tree, tuple):
        return type(tree)(items)
    # Keeps the class, whose constructor may take something else.
    twin = copy.copy(tree)
    list.__setitem__(twin, slice(None), items)
    return twin


def _fields(tree: Tree) -> dict[str, Any] | None:
    if callable(tree) or hasattr(tree, "shape"):
        return None
    return getattr(tree, "__dict__", None)


def _mapping(tree: Any, items: dict[Any, Any]) -> Any:
    if type(tree) is dict:
        return items
    # Keeps the class and its other attributes (transformers' ModelOutput and BatchEncoding).
    twin = copy.copy(tree)
    # (UserDict, BatchEncoding; of a dictionary that answers for attributes with its entries "data" may be anything or an error)
    if not isinstance(tree, dict) and isinstance(getattr(twin, "data", None), dict):
        twin.data = items
        return twin
    for key, value in items.items():
        twin[key] = value
    if getattr(tree, "__dict__", None) is tree:
        twin.__dict__ = twin
        return twin
    # What is an entry and an attribute goes on being both.
    own = getattr(twin, "__dict__", {})
    for key, value in tree.items():
        if own.get(key, _NONE) is value:
            own[key] = items[key]
    return twin
