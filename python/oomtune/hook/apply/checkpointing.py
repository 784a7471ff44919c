"""Activation checkpointing: by the model's own switch if it has one (transformers, timm), else around its repeated blocks,
whose activations are recomputed in the backward pass instead of being kept."""

from __future__ import annotations

import functools
import inspect
import math

from ..cut.redraws import drops_out_within
from .blocks import BlockCosts, chosen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

    from ..types import Call, Module, Torch
    from ..watch.models import Modules
    from .forward_wrappers import ForwardWrappers


#: A sequence of at least this many simple layers is worth cutting into segments.
SEQUENCE = 4


class Checkpointing:
    """`inside`: parts of the hook that wrap the same modules; their flag `inside` is true while they run one. `recomputes()`:
    whether a checkpoint recomputes a part of a forward pass now."""

    def __init__(
        self,
        torch: Torch,
        modules: Modules,
        forwards: ForwardWrappers,
        costs: BlockCosts,
        recomputes: Callable[[], bool],
        inside: Sequence[Any] = (),
    ) -> None:
        self._torch = torch
        self._modules = modules
        self._forwards = forwards
        self._costs = costs
        self._recomputes = recomputes
        self._inside = inside
        self._on = False
        self._wrapped = False
        #: Numbers of the blocks that are checkpointed; None: all.
        self._chosen: frozenset[int] | None = None
        self._plan: tuple[list[Module], list[Module], list[Module]] | None = None
        self._selectable: dict[int, int] | None = None

    def possible(self) -> bool:
        switches, blocks, sequences = self._find()
        return bool(switches or blocks or sequences)

    def blocks(self) -> list[Module]:
        """Those that can be checkpointed one by one, in the model's order; empty where it is all or nothing."""
        switches, blocks, sequences = self._find()
        if sequences or not all(_takes_function(module) or _is_plain(module) for module in switches):
            return []
        found = list(blocks)
        for module in switches:
            own: list[Module] = []
            self._walk(module, own, [])
            found.extend(own)
        return found

    def costs(self) -> list[tuple[int, float]] | None:
        """(bytes, seconds) of each block, where all of them are checkpointed; None: not known."""
        return self._costs.of(self.blocks()) if self._on and self._chosen is None else None

    def switch(self, wanted: bool, some: str = "") -> None:
        """`some`: the blocks, as in OOMTUNE_CHECKPOINTED_BLOCKS; empty: all."""
        self._costs.clear()
        among = chosen(some, len(self.blocks())) if wanted and some else None
        if wanted == self._on and among == self._chosen:
            return
        switches, blocks, sequences = self._find()
        self._chosen = among
        for module in switches:
            # A switch without a function for each block has all of them or none: some are wrapped below.
            _turn(module, wanted and (among is None or _takes_function(module)))
            if wanted and _takes_function(module) and (among is not None or self._costs.wanted):
                self._choose_within(module)
        if wanted and not self._wrapped:
            self._wrapped = True
            # Innermost: only the block itself is recomputed, in whatever order rungs are tried.
            for block in blocks:
                self._forwards.wrap(block, functools.partial(self._around_block, block), innermost=True)
            for sequence in sequences:
                self._forwards.wrap(sequence, functools.partial(self._around_sequence, sequence), innermost=True)
            for module in filter(_is_plain, switches):
                own: list[Module] = []
                self._walk(module, own, [])
                for block in own:
                    self._forwards.wrap(block, functools.partial(self._around_switched, block), innermost=True)
        self._on = wanted

    def _number(self, block: Module) -> int | None:
        if self._selectable is None:
            self._selectable = {id(each): number for number, each in enumerate(self.blocks())}
        return self._selectable.get(id(block))

    def _keeps(self, block: Module) -> bool:
        """Whether the block's activations are kept, though others are recomputed."""
        return self._chosen is not None and self._number(block) not in (None, *self._chosen)

    def _choose_within(self, root: Module) -> None:
        """Puts itself between the model's own checkpointing and its blocks."""
        for module in root.modules():
            function = module.__dict__.get("_gradient_checkpointing_func")
            if function is not None:
                module._gradient_checkpointing_func = _PerBlock(module, function, self)

    def run_block(self, block: Module, function: Call, call: Call, *args: Any, **kwargs: Any) -> Any:
        """The model's own checkpointing of a block: `function` is to run `call`, the block."""
        if self._keeps(block):
            return call(*args, **{name: value for name, value in kwargs.items() if name != "use_reentrant"})
        return function(functools.partial(self._looked_at, block, call), *args, **kwargs)

    def _looked_at(self, block: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        if self._chosen is None and self._recomputes():
            return self._costs.look(block, call, *args, **kwargs)
        return call(*args, **kwargs)

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
            repeated = [child for child in repeated if not self._has_inner(child) and not self._draws_anew(child)]
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

    def _draws_anew(self, block: Module) -> bool:
        """Whether it would draw other random numbers when it is recomputed: cuDNN's dropout between recurrent layers, whose state
        torch does not restore."""
        on_gpu = any(weights.is_cuda for weights in block.parameters())
        return on_gpu and drops_out_within(self._torch, block.modules())

    def _skip(self, module: Module) -> bool:
        return not self._on or not module.training or not self._torch.is_grad_enabled()

    def _around_block(self, block: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        if self._skip(block) or self._keeps(block):
            return call(*args, **kwargs)
        return self._checkpoint(functools.partial(self._looked_at, block, call), [block], *args, **kwargs)

    def _around_switched(self, block: Module, call: Call, *args: Any, **kwargs: Any) -> Any:
        """A block of a model whose own switch is on where all blocks are checkpointed, and off where some are."""
        if self._chosen is not None:
            return self._around_block(block, call, *args, **kwargs)
        return self._looked_at(block, call, *args, **kwargs) if self._on else call(*args, **kwargs)

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


class _PerBlock:
    """Stands for the function by which a model of transformers checkpoints each block. Copies and pickles of the model have
    their own function again."""

    def __init__(self, owner: Module, function: Any, checkpointing: Checkpointing) -> None:
        self._owner = owner
        self._function = function
        self._checkpointing = checkpointing

    def __call__(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        # Older versions checkpoint the blocks where the model calls them, newer ones in each block.
        inner: Any = getattr(call, "func", call)
        module = getattr(inner, "__self__", self._owner)
        return self._checkpointing.run_block(module, self._function, call, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _itself, (self._function,)


def _itself(value: Any) -> Any:
    return value


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


def _takes_function(module: Module) -> bool:
    """Whether its switch sets a function that is called with each block (transformers from 4.35 on)."""
    setter = getattr(module, "_set_gradient_checkpointing", None)
    return callable(setter) and "gradient_checkpointing_func" in inspect.signature(setter).parameters


def _is_plain(module: Module) -> bool:
    """Whether its switch does no more than what can be done around each block (timm)."""
    return not hasattr(module, "gradient_checkpointing_enable")


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
