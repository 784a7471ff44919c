"""The repeated blocks of a model, of which checkpointing may take some: which they are, and what each of them costs."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Memory, Module, Torch

#: What a block's first recomputation allocates besides (kernels, workspaces) is not its activations.
WARM_UP = 1
#: Recomputations of a block that are looked at.
MOST_LOOKS = 32


def chosen(text: str, count: int) -> frozenset[int] | None:
    """The numbers in a text such as `0-3,6/12`. None: all, also where the model has not as many blocks as the text says."""
    numbers, _, total = text.partition("/")
    if not numbers or total != str(count):
        return None
    found: set[int] = set()
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


class BlockCosts:
    """The bytes that a block's activations hold, and the seconds that its forward pass takes: seen where a checkpoint recomputes
    it, as nothing of it is there before and all of it afterwards. `memory()`: None where nothing is to be measured."""

    def __init__(self, torch: Torch, memory: Callable[[], Memory | None]) -> None:
        self._torch = torch
        self._memory = memory
        self._looks: dict[int, list[tuple[int, Any, Any]]] = {}

    @property
    def wanted(self) -> bool:
        return self._memory() is not None

    def clear(self) -> None:
        self._looks = {}

    def look(self, block: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        """Runs `call`, the recomputation of the block."""
        memory, looks = self._memory(), self._looks.setdefault(id(block), [])
        before = memory.live() if memory is not None and len(looks) < MOST_LOOKS else None
        if memory is None or before is None:
            return call(*args, **kwargs)
        begun = self._mark(memory)
        try:
            # It may end by an exception, once all is there that the backward pass needs.
            return call(*args, **kwargs)
        finally:
            ended, after = self._mark(memory), memory.live()
            if after is not None:
                looks.append((max(0, after - before), begun, ended))

    def _mark(self, memory: Memory) -> Any:
        if memory.device == "cpu":
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def of(self, blocks: list[Module]) -> list[tuple[int, float]] | None:
        """(bytes, seconds) of each; None: not all of them were recomputed. The device must have come to rest."""
        looks = [self._looks.get(id(block), [])[WARM_UP:] for block in blocks]
        if not looks or not all(looks):
            return None
        sizes = [max(size for size, _, _ in each) for each in looks]
        times = [min(_between(*marks) for _, *marks in each) for each in looks]
        kinds = [_kind(block, size) for block, size in zip(blocks, sizes)]
        alike = {kind: sorted(each for each, other in zip(times, kinds) if other == kind) for kind in set(kinds)}
        # Of blocks of a kind none is slower than another: that is the machine's noise.
        return [(size, alike[kind][len(alike[kind]) // 2]) for size, kind in zip(sizes, kinds)]


def _kind(block: Module, size: int) -> Any:
    return type(block), tuple(tuple(each.shape) for each in block.parameters()), size.bit_length()


def _between(begun: Any, ended: Any) -> float:
    return ended - begun if isinstance(begun, float) else begun.elapsed_time(ended) / 1000
