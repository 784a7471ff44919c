"""What the script's tensors hold on the card that is not there: each storage as it is made and freed, in order."""

from __future__ import annotations

import json
import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Tensor


class Holding:
    """A storage on the card. `number`: its place among all that the trace tells of; None: the trace does not tell of it."""

    def __init__(self, number: int | None, size: int) -> None:
        self.number = number
        self.size = size
        #: Its values are no longer those of the copies on the host.
        self.unknown = False
        self.alive: Any = None


class CardLedger:
    """Bytes. The trace is a list of whole numbers: n >= 0 is an allocation of n bytes, n < 0 frees allocation -n - 1."""

    def __init__(self, folder: str) -> None:
        self.live = 0
        self.peak = 0
        #: What changes the estimate, in words for the user.
        self.notes: set[str] = set()
        #: An operator works out shapes: its tensors say what they are, without memory.
        self.inside = False
        self.multiplies = False
        self.convolves = False
        self._folder = folder
        self._holdings: dict[int, Holding] = {}
        #: What was allocated and freed before the first probe, then in the current one.
        self._prelude: list[int] = []
        self._events = self._prelude
        self._before = 0
        self._count = 0
        self._steps: list[int] = []

    def holding(self, tensor: Tensor) -> Holding | None:
        """None: the tensor is not on the card."""
        try:
            return self._holdings.get(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            return None  # sparse and other tensors that have no storage

    def add(self, tensor: Tensor) -> None:
        """Notes the storage of a tensor, if it is a new one."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        held = self._holdings.get(key)
        if held is not None:
            if held.size == size:
                return
            self._free(key, held)
        number = None
        if size > 0:
            number = self._number(size)
        held = self._holdings[key] = Holding(number, size)
        held.alive = weakref.ref(storage, lambda _: self._free(key, held))
        self.live += size
        self.peak = max(self.peak, self.live)

    def temporary(self, size: int) -> None:
        """Memory that a kernel takes for the time of its work."""
        if size > 0:
            self._events.append(-self._number(size) - 1)
            self.peak = max(self.peak, self.live + size)

    def _number(self, size: int) -> int:
        self._events.append(size)
        self._count += 1
        return self._count - 1

    def _free(self, key: int, held: Holding) -> None:
        if self._holdings.get(key) is held:
            del self._holdings[key]
        self.live -= held.size
        if held.number is not None:
            self._events.append(-held.number - 1)

    # -- the trace

    def begin_probe(self) -> None:
        """What an earlier probe has left is not told: a process that begins with this size has none of it."""
        if self._events is self._prelude:
            self._before = self._count
        for held in self._holdings.values():
            if held.number is not None and held.number >= self._before:
                held.number = None
        self._count = self._before
        self._events = []
        self._steps = []

    def step_done(self) -> None:
        self._steps.append(len(self._events))

    def write(self, micro_batch: int) -> None:
        """Writes the trace of the probe that has ended, for the worker."""
        trace = {
            "micro_batch": micro_batch,
            # Where the command carries the size there is one probe, from the start of the process on.
            "prelude": [] if self._events is self._prelude else self._prelude,
            "events": self._events,
            "steps": self._steps,
            # Made once, in an earlier probe, and still in use (a loss scaler's scale).
            "kept": [held.size for held in self._holdings.values() if held.number is None and held.size > 0],
            "multiplies": self.multiplies,
            "convolves": self.convolves,
            "notes": sorted(self.notes),
        }
        path = os.path.join(self._folder, "%d.json" % micro_batch)
        with os.fdopen(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(trace, file)
        os.replace(path + ".part", path)


def keeps_storages(torch: Any) -> bool:
    """Whether this torch lets Python see when a storage is freed that only the graph holds (2.1 and newer)."""
    try:
        tensor = torch.ones(1, device="meta", requires_grad=True)
        made = tensor.exp()
        freed = weakref.ref(made.untyped_storage())
        loss = made.sum()
        del made
        held = freed() is not None
        loss.backward()
        return held and freed() is None
    except Exception:
        return False
