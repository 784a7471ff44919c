"""What `itertools.cycle` keeps of a loader: every batch of its first pass, which it hands out again from then on.

In a search no pass ends: it would keep batches for ever, of all sizes that were tried, which looks like a leak. It is made to keep
what it keeps in a training: one pass over the data.
"""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import gc
import itertools
import types
import weakref

from ..cut.pytree import tree_leaves, tree_map
from ..watch import batch_tree
from ..watch.loader import LoaderIterator, drawn_count, drops_last, own_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Loader, Torch


#: What may be between a loader's iterator and what cycles it (a bar of progress, accelerate's loader), and how many of them.
_BETWEEN = (types.GeneratorType, types.FrameType, enumerate, map, zip)
_DEEPEST = 3
#: So many iterators of a loader that nothing cycles tell that nothing will: to look goes through all objects of the process each time.
_ENOUGH = 3
KEEPER = (
    "itertools.cycle, which keeps every batch of its first pass over the data (a generator that iterates over the loader "
    "again and again keeps none)"
)


class CycledLoaders:
    """`budget`: the bytes that all may take; None: unknown."""

    def __init__(self, torch: Torch, budget: int | None) -> None:
        self._torch = torch
        self._budget = budget
        #: By iterator of a loader; None: nothing cycles it.
        self._cycles: weakref.WeakKeyDictionary[LoaderIterator, _Cycle | None] = weakref.WeakKeyDictionary()
        #: How many iterators of a loader were looked at that nothing cycles.
        self._plain: weakref.WeakKeyDictionary[Loader, int] = weakref.WeakKeyDictionary()
        #: A pass has no known end, or more data than the budget: what is kept grows with each step.
        self.grows = False

    def see(self, iterator: LoaderIterator) -> None:
        """The iterator is asked for a batch. To be called before garbage is set apart, as what is has no known referrers."""
        plain = self._plain.get(iterator.loader, 0)
        if iterator in self._cycles or plain >= _ENOUGH:
            return
        found = self._cycles[iterator] = _cycle_over(iterator)
        if found is None:
            self._plain[iterator.loader] = plain + 1

    def forget_batches(self) -> None:
        """Batches of another size are to be kept from now on."""
        self.grows = False
        for cycle in self._cycles.values():
            if cycle is not None:
                del cycle.kept[:]

    def hand_out(self, iterator: LoaderIterator, size: int, device: str) -> None:
        """A batch of `size` samples is about to be handed out: with it, one pass is kept. Copies of what the loop kept of the batch before
        stand for those that a training would have had."""
        cycle = self._cycles.get(iterator)
        if cycle is None or not cycle.kept:
            return
        kept, samples, batch = cycle.kept, cycle.samples, cycle.kept[-1]
        if samples is None or self._bytes(batch, device) * samples / size > (self._budget or float("inf")):
            self.grows = True
            return
        others, rest = divmod(max(0, samples - size), size)
        smaller = rest > 0 and not drops_last(iterator.loader)
        if smaller and len(kept) == 1:
            kept.insert(0, self._copy(batch_tree.slice_rows(self._torch, batch, size, 0, rest), device))
        wanted = others + smaller
        del kept[int(smaller) : int(smaller) + max(0, len(kept) - wanted)]
        while len(kept) < wanted:
            kept.append(self._copy(batch, device))

    def _bytes(self, batch: Any, device: str) -> int:
        tensors = (leaf for leaf in tree_leaves(self._torch, batch) if self._is_on(leaf, device))
        return sum(tensor.element_size() * tensor.nelement() for tensor in tensors)

    def _copy(self, batch: Any, device: str) -> Any:
        """What is elsewhere takes nothing of the budget."""

        def copied(leaf: Any) -> Any:
            return leaf.detach().clone() if self._is_on(leaf, device) else leaf

        return tree_map(self._torch, batch, copied)

    def _is_on(self, leaf: Any, device: str) -> bool:
        return isinstance(leaf, self._torch.Tensor) and str(leaf.device) == device


class _Cycle:
    """`kept`: the batches that an `itertools.cycle` has kept so far, in its own list. `samples`: those of the first pass; None: unknown."""

    def __init__(self, kept: list[Any], samples: int | None) -> None:
        self.kept = kept
        self.samples = samples


def _cycle_over(iterator: LoaderIterator) -> _Cycle | None:
    """The `itertools.cycle` that goes over the iterator; None: there is none."""
    inner: list[Any] = [iterator]
    for _ in range(_DEEPEST):
        outer = gc.get_referrers(*inner)
        for one in outer:
            kept = [part for part in gc.get_referents(one) if type(part) is list] if _is_cycle(one) else ()
            if kept:
                return _Cycle(kept[0], _samples(iterator, one))
        inner = [one for one in outer if isinstance(one, _BETWEEN)]
        if not inner:
            break
    return None


def _is_cycle(value: Any) -> bool:
    return type(value) is itertools.cycle


def _samples(iterator: LoaderIterator, cycle: Any) -> int | None:
    """The samples of a pass over the loader, or the fewer that are drawn of it before a loader ends that is zipped with it."""
    loader = iterator.loader
    drawn, own = drawn_count(loader), own_batch(loader)
    found = [] if drawn is None else [drawn]
    for group in gc.get_referrers(*(one for one in gc.get_referrers(cycle) if type(one) is tuple)):
        for other in _zipped(group, cycle):
            others_drawn, others_own = drawn_count(other.loader), own_batch(other.loader)
            if others_drawn is not None and own and others_own:
                found.append(-(-others_drawn * own // others_own))
    return min(found, default=None)


def _zipped(group: Any, cycle: Any) -> list[LoaderIterator]:
    """The loaders' iterators that are zipped with the cycle itself, if that is what `group` does."""
    parts = (
        [part for one in gc.get_referents(group) if type(one) is tuple for part in one] if type(group) is zip else []
    )
    return [part for part in parts if isinstance(part, LoaderIterator)] if any(part is cycle for part in parts) else []
