"""Weights that torch.nn.utils.parametrize.cached() keeps for all that its `with` surrounds: kept by a forward pass without a graph, they
would give no gradients."""

from __future__ import annotations

import contextlib

from .refusal import Uncuttable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Generator, Iterable

    from ..types import Module, Torch
    from .buffers import BufferKey


class CachedWeights:
    """Whether they are kept now, to be so again later: the backward pass may run outside of the script's `with`."""

    def __init__(self, torch: Torch) -> None:
        self._parametrize = torch.nn.utils.parametrize
        self.on: int = self._parametrize._cache_enabled

    @contextlib.contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Inside, none are kept from before, and afterwards none from inside."""
        found = self._parametrize
        before = found._cache_enabled, found._cache
        found._cache_enabled, found._cache = self.on, {}
        try:
            yield
        finally:
            found._cache_enabled, found._cache = before

    def require_same(self, modules: Iterable[Module], changed: Collection[BufferKey]) -> None:
        """`changed`: the buffers of the modules that a forward pass changes. Raises Uncuttable if a second call computes other weights
        by them than the first, which would have been kept."""
        kind = self._parametrize.ParametrizationList
        theirs = {id(each) for module in modules if isinstance(module, kind) for each in module.modules()}
        if self.on and any(id(owner) in theirs for owner, _ in changed):
            raise Uncuttable(
                "torch.nn.utils.parametrize.cached() around it keeps weights that each forward pass computes anew from the "
                "last one's (spectral normalisation); without cached(), each call has its own"
            )
