"""Activation checkpointing: by the model's own switch if it has one (transformers, timm), else around its repeated blocks,
whose activations are recomputed in the backward pass instead of being kept."""

from __future__ import annotations

import functools
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..types import Call, Module, Torch
    from ..watch.models import Modules
    from .forward_wrappers import ForwardWrappers


#: A sequence of at least this many simple layers is worth cutting into segments.
SEQUENCE = 4


class Checkpointing:
    """`inside`: parts of the hook that wrap the same modules; their flag `inside` is true while they run one."""

    def __init__(self, torch: Torch, modules: Modules, forwards: ForwardWrappers, inside: Sequence[Any] = ()) -> None:
        self._torch = torch
        self._modules = modules
        self._forwards = forwards
        self._inside = inside
        self._on = False
        self._wrapped = False
        self._plan: tuple[list[Module], list[Module], list[Module]] | None = None

    def possible(self) -> bool:
        switches, blocks, sequences = self._find()
        return bool(switches or blocks or sequences)

    def switch(self, wanted: bool) -> None:
        if wanted == self._on:
            return
        switches, blocks, sequences = self._find()
        for module in switches:
            _turn(module, wanted)
        if wanted and not self._wrapped:
            self._wrapped = True
            # Innermost: only the block itself is recomputed, in whatever order rungs are tried.
            for block in blocks:
                self._forwards.wrap(block, functools.partial(self._around_block, block), innermost=True)
            for sequence in sequences:
                self._forwards.wrap(sequence, functools.partial(self._around_sequence, sequence), innermost=True)
        self._on = wanted

    def _find(self) -> tuple[list[Module], list[Module], list[Module]]:
        if self._plan is None:
            switches: list[Module] = []
            blocks: list[Module] = []
            sequences: list[Module] = []
            for root in self._modules.roots():
                found = list(_with_switch(root))
                switches.extend(found)
                if not found:
                    self._walk(root, blocks, sequences)
            if blocks or len(sequences) > 1:
                # Many short sequences count as blocks; only a model that is a single sequence is cut into segments.
                blocks.extend(sequences)
                sequences = []
            self._plan = switches, blocks, sequences
        return self._plan

    def _walk(self, module: Module, blocks: list[Module], sequences: list[Module]) -> None:
        nn = self._torch.nn
        children = list(module.children())
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            heavy = [child for child in children if any(True for _ in child.children()) and _has_parameters(child)]
            kinds: list[Any] = [type(child) for child in heavy]
            repeated = [child for child in heavy if kinds.count(type(child)) > 1]
            # In a sequence of sequences (the stages of a residual network) the blocks are one level down.
            repeated = [child for child in repeated if not self._has_inner(child)]
            blocks.extend(repeated)
            children = [child for child in children if not any(child is block for block in repeated)]
            simple = isinstance(module, nn.Sequential) and not heavy
            if simple and len(children) >= SEQUENCE and _has_parameters(module):
                sequences.append(module)
                return
        for child in children:
            self._walk(child, blocks, sequences)

    def _has_inner(self, module: Module) -> bool:
        nn = self._torch.nn
        if not isinstance(module, (nn.ModuleList, nn.Sequential)):
            return False
        inner: list[Module] = []
        found: list[Module] = []
        self._walk(module, inner, found)
        return bool(inner)

    def _skip(self, module: Module) -> bool:
        return not self._on or not module.training or not self._torch.is_grad_enabled()

    def _around_block(self, block: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        if self._skip(block):
            return call(*args, **kwargs)
        return self._checkpoint(call, [block], *args, **kwargs)

    def _around_sequence(self, sequence: Module, call: Call, value: Any) -> Any:
        if self._skip(sequence):
            return call(value)
        layers = list(sequence)
        size = max(2, math.ceil(math.sqrt(len(layers))))
        for start in range(0, len(layers), size):
            part = layers[start : start + size]
            value = self._checkpoint(functools.partial(_through, part), part, value)
        return value

    def _checkpoint(self, call: Call, modules: list[Module], *args: Any, **kwargs: Any) -> Any:
        import importlib

        checkpoint: Call = importlib.import_module("torch.utils.checkpoint").checkpoint

        norm = self._torch.nn.modules.batchnorm._BatchNorm
        norms = [layer for module in modules for layer in module.modules() if isinstance(layer, norm)]
        replay = _Replay(functools.partial(call, **kwargs), norms, self._inside)
        return checkpoint(replay, *args, use_reentrant=False)


class _Replay:
    """Runs a block. When it is recomputed in the backward pass, leaves running statistics as they are, and restores the flags of
    the wrappers around it (torch itself restores precision and random state)."""

    def __init__(self, call: Call, norms: list[Any], inside: Sequence[Any]) -> None:
        self._call = call
        self._norms = [layer for layer in norms if layer.track_running_stats]
        self._inside = [(part, part.inside) for part in inside]
        self._ran = False

    def __call__(self, *args: Any) -> Any:
        if not self._ran:
            self._ran = True
            return self._call(*args)
        now = [part.inside for part, _ in self._inside]
        try:
            for part, before in self._inside:
                part.inside = before
            return self._again(*args)
        finally:
            for (part, _), flag in zip(self._inside, now):
                part.inside = flag

    def _again(self, *args: Any) -> Any:
        momenta = [layer.momentum for layer in self._norms]
        counts = [
            None if layer.num_batches_tracked is None else layer.num_batches_tracked.clone() for layer in self._norms
        ]
        try:
            for layer in self._norms:
                layer.momentum = 0.0
            return self._call(*args)
        finally:
            for layer, momentum, count in zip(self._norms, momenta, counts):
                layer.momentum = momentum
                if count is not None:
                    layer.num_batches_tracked.copy_(count)


def _through(layers: list[Any], value: Any) -> Any:
    for layer in layers:
        value = layer(value)
    return value


def _has_parameters(module: Module) -> bool:
    return any(True for _ in module.parameters())


def _with_switch(root: Module) -> Iterator[Module]:
    """The outermost modules that have their own switch for checkpointing."""
    if _has_switch(root):
        yield root
        return
    for child in root.children():
        yield from _with_switch(child)


def _has_switch(module: Module) -> bool:
    if callable(getattr(module, "gradient_checkpointing_enable", None)):
        return bool(getattr(module, "supports_gradient_checkpointing", True))
    return callable(getattr(module, "set_grad_checkpointing", None))


def _turn(module: Module, wanted: bool) -> None:
    if not hasattr(module, "gradient_checkpointing_enable"):
        module.set_grad_checkpointing(wanted)
    elif not wanted:
        module.gradient_checkpointing_disable()
    else:
        try:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        except TypeError:  # before transformers 4.35
            module.gradient_checkpointing_enable()
