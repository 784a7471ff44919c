"""Ends a job where it has just written a checkpoint of its own, if the worker asks for that: its next launch resumes there."""

from __future__ import annotations

import threading
from collections import Counter

from ..watch.batch_tree import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..hook import Hook
    from ..types import Torch
    from ..watch.optimizers import Optimizers


#: EX_TEMPFAIL of sysexits.h: it is to be tried again.
STATUS = 75


class CheckpointEnd:
    """The checkpoint is whole when the script goes on to its next step: what it writes, renames and removes besides is done by
    then, and no weight has moved."""

    def __init__(self, hook: Hook, torch: Torch, optimizers: Optimizers) -> None:
        self._hook = hook
        self._torch = torch
        self._optimizers = optimizers
        #: The worker wants the job to end at its next checkpoint.
        self._asked = False
        #: It has been told to end, and the script knows.
        self._ending = False
        #: Shapes of all tensors that were saved since.
        self._shapes: Counter[tuple[int, ...]] = Counter()

    def saved(self, what: Any) -> None:
        """`what` was saved. A thread may be at it still when the next step is made, so that its saves do not count."""
        if threading.current_thread() is not threading.main_thread() or self._optimizers.stepping:
            return
        if not self._asked:
            order = self._hook.connection.poll()
            self._asked = order is not None and order.get("t") == "checkpoint"
        if self._asked:
            self._shapes.update(self._of(what))

    def before_step(self, steps: int) -> None:
        """`steps`: as many were made. Leaves the script by SystemExit, as its own `finally` and exit handlers may have to run."""
        if self._ending:
            # The script caught it and trains on, from where its checkpoint is.
            self._hook.exit_process(STATUS)
        shapes = self._shapes
        if not shapes or threading.current_thread() is not threading.main_thread():
            return
        self._shapes = Counter()
        if self._wanted() - shapes:
            return  # not all that a checkpoint has
        self._hook.connection.send({"t": "checkpoint", "n": steps})
        order = self._hook.connection.receive()
        if order is None or order.get("t") != "end":
            self._asked = order is not None
            return
        self._ending = True
        self._hook.goodbye("checkpoint", "it has ended at its checkpoint, to go on in less memory")
        raise SystemExit(STATUS)

    def _wanted(self) -> Counter[tuple[int, ...]]:
        """What a checkpoint to resume from holds: what the optimizers keep of each weight, or else the weights."""
        states = [state for optimizer in self._optimizers.known() for state in optimizer.state.values()]
        kept = self._of(states, least=1)
        return kept or self._of(list(self._optimizers.parameters()))

    def _of(self, tree: Any, least: int = 0) -> Counter[tuple[int, ...]]:
        return Counter(tuple(tensor.shape) for tensor in self._tensors(tree) if tensor.dim() >= least)

    def _tensors(self, tree: Any) -> Iterator[Any]:
        for leaf in leaves(tree, depth=0):
            if isinstance(leaf, self._torch.nn.Module):
                yield from leaf.parameters()
            elif isinstance(leaf, self._torch.Tensor):
                yield leaf
