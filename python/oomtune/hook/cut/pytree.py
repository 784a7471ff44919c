"""What a module takes and gives, as nested structures: containers are made anew, leaves are replaced in order."""

import copy
from collections.abc import Mapping

#: How deep objects that are no containers are looked into.
DEPTH = 4

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


class Rows:
    """A list with one entry a sample (texts, images of many sizes): a leaf that can be cut."""

    def __init__(self, items):
        self.items = items


def mapped(torch, tree, visit, rows=(), depth=DEPTH):
    """The same structure with visit(leaf) in place of each leaf: tensors, values, and lists of one of the lengths
    `rows`, which are visited as Rows."""
    if isinstance(tree, torch.Tensor) or isinstance(tree, _PLAIN):
        return visit(tree)

    def deeper(value, down=depth):
        return mapped(torch, value, visit, rows, down)

    if isinstance(tree, Mapping):
        return _mapping(tree, {key: deeper(value) for key, value in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(deeper(value) for value in tree))
    if isinstance(tree, (list, tuple)):
        if len(tree) in rows and len(tree) > 1 and _one_each(torch, tree):
            return visit(Rows(tree))
        made = [deeper(value) for value in tree]
        return made if type(tree) is list else type(tree)(made)
    fields = _fields(tree) if depth else None
    if not fields:
        return visit(tree)
    made = {name: deeper(value, depth - 1) for name, value in fields.items()}
    if all(value is fields[name] for name, value in made.items()):
        return tree
    twin = copy.copy(tree)
    for name, value in made.items():
        object.__setattr__(twin, name, value)
    return twin


def leaves(torch, tree, rows=()):
    found = []
    mapped(torch, tree, lambda leaf: (found.append(leaf), leaf)[1], rows)
    return found


def rebuilt(torch, tree, replaced, rows=()):
    """The structure of `tree` with other leaves, in the order that leaves() gives them."""
    source = iter(replaced)
    return mapped(torch, tree, lambda leaf: next(source), rows)


def _one_each(torch, items):
    """Whether a list has an entry for each sample: things of one kind, and no tensors that have rows of their own for each."""
    if len({type(item) for item in items}) > 1 or items[0] is None:
        return False
    batches = (isinstance(item, torch.Tensor) and item.dim() > 0 and item.shape[0] == len(items) for item in items)
    return not all(batches)


def _fields(tree):
    if callable(tree) or hasattr(tree, "shape"):
        return None
    return getattr(tree, "__dict__", None)


def _mapping(tree, items):
    if type(tree) is dict:
        return items
    # Keeps the class and what else it carries (transformers' ModelOutput and BatchEncoding).
    twin = copy.copy(tree)
    if isinstance(getattr(twin, "data", None), dict):
        twin.data = items
        return twin
    for key, value in items.items():
        twin[key] = value
    return twin
