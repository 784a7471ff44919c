"""Buffers that a forward pass changes: running statistics count each micro-batch once; buffers that do not depend on the
samples (the vectors of spectral normalisation) change once per call."""

from __future__ import annotations

import contextlib

from .dense import is_dense
from .lazy_layers import is_made
from .refusal import Keeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generator, Iterable, Optional, Tuple

    from ..types import Module, Tensor, Torch

    #: (the module that owns a buffer, its name there).
    BufferKey = Tuple[Module, str]
    #: Its owner, its name there, itself, its value (None: not copied), and its version then.
    Entry = Tuple[Module, str, Tensor, Optional[Tensor], int]

#: Whole numbers of more bytes are quantised weights or tables, which no forward pass changes. A copy of all weights of a model in four
#: bits would not fit where the model just does, so that it is only looked at whether such a buffer has been written to.
COPIED = 1 << 20


def compiled(module: Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def buffer_keys(modules: Iterable[Module]) -> list[BufferKey]:
    # (those of a compiled TorchScript are no dictionary)
    return [
        (owner, name) for owner in modules for name, each in owner._buffers.items() if each is None or is_made(each)
    ]


class Snapshot:
    """The values of some buffers, as they are now."""

    def __init__(self, keys: Iterable[BufferKey]) -> None:
        found = [(owner, name, buffer_of(owner, name)) for owner, name in keys]
        self._entries: list[Entry] = [
            (owner, name, buffer, None if _is_only_watched(buffer) else buffer.detach().clone(), version_of(buffer))
            for owner, name, buffer in found
            if buffer is not None
        ]

    def restore(self) -> None:
        """Brings all of them back, but what has been written to one that is not copied."""
        for owner, name, buffer, value, _ in self._entries:
            owner._buffers[name] = buffer
            if value is not None:
                # By .data, so that its version stays: a graph may hold the buffer, but does not need its values.
                buffer.data.copy_(value)

    def require_restorable(self) -> None:
        """Raises Keeps if one has been written to that is not copied."""
        for owner, name, buffer, value, version in self._entries:
            if value is None and version_of(buffer) != version:
                what = "buffer of %d MiB" % (_bytes(buffer) >> 20)
                what = what if is_dense(buffer) else "sparse, nested or quantised buffer"
                raise Keeps("its forward pass changes a %s (%s.%s)" % (what, type(owner).__name__, name))

    def changed(self, torch: Torch) -> list[BufferKey]:
        """Buffers whose value has changed since. Raises Keeps as require_restorable() does."""
        self.require_restorable()
        return [
            (owner, name)
            for owner, name, buffer, value, _ in self._entries
            if buffer_of(owner, name) is not buffer or (value is not None and not _same(torch, buffer, value))
        ]

    def only(self, keys: Iterable[BufferKey]) -> Snapshot:
        """The part of the snapshot for these buffers."""
        chosen = Snapshot([])
        wanted = {(id(owner), name) for owner, name in keys}
        chosen._entries = [entry for entry in self._entries if (id(entry[0]), entry[1]) in wanted]
        return chosen


def buffer_of(owner: Module, name: str) -> Tensor | None:
    return dict(owner._buffers.items()).get(name)


def _is_only_watched(buffer: Tensor) -> bool:
    """Tables, and what has no values that can be compared, as the sparse matrix of a graph."""
    whole = not (buffer.is_floating_point() or buffer.is_complex())
    return not is_dense(buffer) or (whole and _bytes(buffer) > COPIED)


def _bytes(buffer: Tensor) -> int:
    return buffer.numel() * buffer.element_size()


def learning_buffers(modules: Iterable[Module]) -> list[Tensor]:
    """Those that get gradients, which a forward pass may set them to."""
    found = (buffer_of(owner, name) for owner, name in buffer_keys(modules))
    return list({id(each): each for each in found if each is not None and each.requires_grad and each.is_leaf}.values())


def version_of(buffer: Tensor) -> int:
    return 0 if buffer.is_inference() else buffer._version


def _same(torch: Torch, one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if one.is_floating_point() and one.element_size() == 1:
        # Types in 8 bits and fewer cannot be computed with.
        return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
    return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


class Buffers:
    """The buffers of one module. Its first cut call shows which of them change."""

    def __init__(self, torch: Torch, module: Module) -> None:
        self._torch = torch
        #: The buffers before the first micro-batch; None: it is known by now which of them change.
        self._before: Snapshot | None = Snapshot(buffer_keys(module.modules()))
        #: Buffers with running statistics of the samples, and others that change.
        self._statistics: list[BufferKey] = []
        self.others: list[BufferKey] = []
        self._copies: dict[tuple[int, str], Tensor] = {}
        self._lends = not any(compiled(owner) for owner in module.modules())
        #: Those others after and before the very first micro-batch.
        self._after_first: Snapshot | None = None
        self._before_first: Snapshot | None = None

    @property
    def known(self) -> bool:
        """Whether it is known which of them change."""
        return self._before is None

    def learn(self) -> None:
        """After the first micro-batch's forward pass: notes which buffers have changed."""
        before, self._before = self._before, None
        if before is None:
            return
        norm = self._torch.nn.modules.batchnorm._NormBase
        for owner, name in before.changed(self._torch):
            (self._statistics if isinstance(owner, norm) else self.others).append((owner, name))
        self._after_first = Snapshot(self.others) if self.others else None
        self._before_first = before.only(self.others)

    @property
    def waiting(self) -> bool:
        """Whether it is still unknown if the others depend on the samples."""
        return self._after_first is not None

    def before_first(self) -> Snapshot | None:
        """The others before the first micro-batch of the call that showed them; only once, then None."""
        before, self._before_first = self._before_first, None
        return before

    def differ(self) -> bool:
        """After the second micro-batch: whether the others depend on the samples."""
        first, self._after_first = self._after_first, None
        return first is not None and bool(first.changed(self._torch))

    def snapshot(self) -> Snapshot:
        return Snapshot(self.others)

    @contextlib.contextmanager
    def preserved(self, wanted: bool = True) -> Generator[None, None, None]:
        """Forward passes inside leave the buffers as they are."""
        if not wanted:
            yield
            return
        # Running statistics are only written: replaced by copies, unless compiled code holds the tensors.
        kept = Snapshot(self.others + ([] if self._lends else self._statistics))
        lent = self._lend() if self._lends else []
        try:
            yield
        finally:
            kept.restore()
            for owner, name, buffer in lent:
                owner._buffers[name] = buffer

    def _lend(self) -> list[tuple[Module, str, Tensor]]:
        lent: list[tuple[Module, str, Tensor]] = []
        for owner, name in self._statistics:
            buffer = owner._buffers[name]
            lent.append((owner, name, buffer))
            owner._buffers[name] = None if self._counts(owner, name) else self._copy(owner, name, buffer)
        return lent

    def _counts(self, owner: Module, name: str) -> bool:
        """Whether it counts forward passes and can be None: on a GPU each count launches a kernel."""
        return (
            name == "num_batches_tracked" and type(owner).forward is self._torch.nn.modules.batchnorm._BatchNorm.forward
        )

    def _copy(self, owner: Module, name: str, buffer: Tensor) -> Tensor:
        copy = self._copies.get((id(owner), name))
        if copy is None or (copy.device, copy.dtype, copy.shape) != (buffer.device, buffer.dtype, buffer.shape):
            copy = self._copies[id(owner), name] = buffer.detach().clone()
        return copy
