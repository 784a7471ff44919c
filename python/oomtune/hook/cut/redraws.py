"""Whether the random numbers of a forward pass can be drawn again, as a micro-batch's are in the backward pass. Those of a generator
that the module keeps cannot, nor those of dropout between the layers of cuDNN's recurrent networks, whose state torch does not restore."""

from __future__ import annotations

import contextlib

from .nearness import near
from .pytree import tree_leaves
from .refusal import Uncuttable, WritesWeights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Iterable

    from ..types import Leaves, Module, Torch, Tree
    from .ranks import OneRank
    from .sandbox import Sandbox


class Redraws:
    """`run()` runs the module on a few samples."""

    def __init__(
        self, torch: Torch, sandbox: Sandbox, run: Callable[[], Tree], tolerance: float, ranks: OneRank
    ) -> None:
        self._torch = torch
        self._sandbox = sandbox
        self._run = run
        self._tolerance = tolerance
        self._ranks = ranks

    def without_cudnn(self, modules: Iterable[Module]) -> bool:
        """Whether they can be drawn again only without cuDNN. Raises Uncuttable if they cannot be at all."""
        if not self._ranks.any(not self._same()):
            return False
        if self._ranks.any(drops_out_within(self._torch, modules)):
            with no_cudnn(self._torch):
                if not self._ranks.any(not self._same()):
                    return True
        raise Uncuttable(
            "it draws random numbers that cannot be drawn again in the backward pass (by a generator of its own): torch's own can"
        )

    def _same(self) -> bool:
        try:
            one, other = self._outputs()
        except WritesWeights:
            raise
        except Exception as failed:
            from ..report.exceptions import is_oom

            if is_oom(failed):
                raise
            return True  # not of a few samples in training mode: nothing is known of it
        # (another structure each time is no matter of random numbers)
        return len(one) != len(other) or all(near(self._torch, *pair, self._tolerance) for pair in zip(one, other))

    def _outputs(self) -> list[Leaves]:
        found: list[Leaves] = []
        with self._sandbox.entered(False, False, still=False), self._torch.no_grad():
            buffers, attributes = self._sandbox.buffers(), self._sandbox.attributes()
            # As from one micro-batch to the next: cuDNN goes on from what it drew last, and begins anew wherever a state is set.
            self._run()
            random, weights = self._sandbox.random(), self._sandbox.weights()
            for _ in range(2):
                buffers.restore()
                attributes.restore()
                found.append(tree_leaves(self._torch, self._run()))
                random.restore()
            weights.require_same()
        return found


def drops_out_within(torch: Torch, modules: Iterable[Module]) -> bool:
    """Whether a recurrent network has dropout between its layers."""
    return any(
        isinstance(each, torch.nn.RNNBase) and each.training and each.dropout and each.num_layers > 1
        for each in modules
    )


def no_cudnn(torch: Torch, wanted: bool = True) -> ContextManager[Any]:
    return torch.backends.cudnn.flags(enabled=False) if wanted else contextlib.nullcontext()
