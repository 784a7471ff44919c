"""Batches and samples as nested structures: tuples, lists, dictionaries, tensors, arrays, text."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..types import Call, Torch


def data_size(sample: Any) -> int:
    """How much data a sample holds: elements of tensors and arrays, items of lists, letters of text, and what the fields of an object hold."""
    shape = getattr(sample, "shape", None)
    if shape is not None and not callable(shape):
        total = 1
        for length in shape:
            total *= int(length)
        return total
    if isinstance(sample, (str, bytes)):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(data_size(value) for value in sample.values())
    if isinstance(sample, (list, tuple)):
        if len(sample) > 16 and isinstance(sample[0], (int, float)):
            return len(sample)
        return sum(data_size(value) for value in sample)
    size = getattr(sample, "size", None)
    if isinstance(size, tuple):  # PIL images
        return size[0] * size[1]
    # Samples of a class of their own: graphs, data classes.
    return sum(data_size(leaf) for leaf in leaves(sample) if hasattr(leaf, "shape")) or 1


def unpadded_size(sample: Any) -> int:
    """The same, without what the sample's own mask hides: data sets that pad all of their samples to one length have one."""
    size = data_size(sample)
    mask: Any = sample.get("attention_mask") if isinstance(sample, Mapping) else None
    if mask is None or not hasattr(mask, "__len__"):
        return size
    count = len(mask)
    try:
        kept = int(sum(mask))
    except (TypeError, ValueError):
        return size
    return size * kept // count if 0 < kept < count else size


def copy_containers(sample: Any) -> Any:
    """Copies the sample's containers, not its tensors: collate functions pop from dictionaries and sort lists."""
    if isinstance(sample, (dict, list)):
        twin = copy.copy(sample)
        for key, value in sample.items() if isinstance(sample, dict) else enumerate(sample):
            if isinstance(value, (dict, list, tuple)):
                twin[key] = copy_containers(value)
        return twin
    if type(sample) is tuple:
        return tuple(copy_containers(value) for value in sample)
    return sample


#: How deep the fields of objects are followed.
DEPTH = 4


def _fields(tree: Any) -> Any:
    """The fields of an object of the script's own batch class (a dataclass, say); None for any other object."""
    if isinstance(tree, (str, bytes, int, float, type)) or inspect.isroutine(tree) or hasattr(tree, "shape"):
        return None  # not callable(): the graphs of PyTorch Geometric can be called
    return getattr(tree, "__dict__", None)


def leaves(tree: Any, depth: int = DEPTH) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        parts = tree.values()
    elif isinstance(tree, (list, tuple)):
        parts = tree
    else:
        fields = _fields(tree) if depth else None
        if not fields:
            yield tree
            return
        parts, depth = fields.values(), depth - 1
    for value in parts:
        yield from leaves(value, depth)


def row_count(torch: Torch, batch: Any, hint: int | None = None) -> int | None:
    """Samples in a collated batch; None if unknown. `hint`: the size that was asked for."""
    lengths = [int(leaf.shape[0]) for leaf in leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]
    if hint is not None and (hint in lengths or _list_of(batch, hint)):
        return hint
    return lengths[0] if lengths else None


def has_row_count(torch: Torch, batch: Any, count: int) -> bool:
    """Whether something in a collated batch has `count` rows, along its first or second dimension (sequences with time first)."""
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]
    return any(count in tensor.shape[:2] for tensor in tensors) or _list_of(batch, count)


def _list_of(tree: Any, count: int) -> bool:
    """Whether a list with one entry per sample (images of many sizes, text) is in the tree."""
    if isinstance(tree, Mapping):
        return any(_list_of(value, count) for value in tree.values())
    if isinstance(tree, (list, tuple)):
        return len(tree) == count or any(_list_of(value, count) for value in tree if isinstance(value, (list, tuple)))
    return False


def all_have_rows(torch: Torch, tree: Any, count: int, depth: int = DEPTH) -> bool:
    """Whether each part of a batch has `count` rows or is a scalar: only then can it be sliced. False for graphs joined into
    one, and for sequences with time first."""
    if isinstance(tree, torch.Tensor):
        return tree.dim() == 0 or tree.shape[0] == count
    if tree is None or isinstance(tree, (str, bytes, int, float)):
        return True
    if isinstance(tree, Mapping):
        return all(all_have_rows(torch, value, count, depth) for value in tree.values())
    if isinstance(tree, (list, tuple)):
        # One entry per sample, of any type.
        return len(tree) == count or all(all_have_rows(torch, value, count, depth) for value in tree)
    shape = getattr(tree, "shape", None)
    if isinstance(shape, tuple):  # numpy
        return len(shape) == 0 or shape[0] == count
    fields = _fields(tree)
    return (
        bool(fields) and depth > 0 and all(all_have_rows(torch, value, count, depth - 1) for value in fields.values())
    )


def _map(tree: Any, cut_tensor: Call, cut_list: Call, torch: Torch, count: int) -> Any:
    if isinstance(tree, torch.Tensor):
        return cut_tensor(tree) if tree.dim() > 0 and tree.shape[0] == count else tree
    if isinstance(tree, Mapping):
        items = {key: _map(value, cut_tensor, cut_list, torch, count) for key, value in tree.items()}
        if type(tree) is dict:
            return items
        # Keeps the class and its other attributes (transformers' BatchEncoding).
        twin: Any = copy.copy(tree)
        if hasattr(twin, "data") and isinstance(twin.data, dict):
            twin.data = items
            return twin
        try:
            for key, value in items.items():
                twin[key] = value
            return twin
        except TypeError:
            return items
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(value, cut_tensor, cut_list, torch, count) for value in tree))
    if isinstance(tree, (list, tuple)):
        tensors = all(isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == count for value in tree)
        if len(tree) == count and not (tensors and len(tree) > 0):
            return cut_list(tree)
        return type(tree)(_map(value, cut_tensor, cut_list, torch, count) for value in tree)
    shape = getattr(tree, "shape", None)
    if isinstance(shape, tuple) and len(shape) > 0 and shape[0] == count:  # numpy
        return cut_tensor(tree)
    fields = _fields(tree)
    if fields:
        parts = {name: _map(value, cut_tensor, cut_list, torch, count) for name, value in fields.items()}
        if all(value is fields[name] for name, value in parts.items()):
            return tree
        twin = copy.copy(tree)
        for name, value in parts.items():
            try:
                object.__setattr__(twin, name, value)
            except AttributeError:
                pass
        return twin
    return tree


def slice_rows(torch: Torch, batch: Any, count: int, start: int, stop: int) -> Any:
    """Rows start:stop of a batch of `count` rows; of tensors, views."""
    return _map(batch, lambda tensor: tensor[start:stop], lambda items: items[start:stop], torch, count)


def repeat_rows(torch: Torch, batch: Any, count: int, wanted: int) -> Any:
    """A batch of `wanted` rows: the rows of a batch of `count`, repeated in turn."""

    def tensor(rows: Any) -> Any:
        if isinstance(rows, torch.Tensor):
            return rows[torch.arange(wanted, device=rows.device) % count]
        return rows[[index % count for index in range(wanted)]]

    def items(values: list[Any]) -> list[Any]:
        return type(values)(values[index % count] for index in range(wanted))

    return _map(batch, tensor, items, torch, count)
