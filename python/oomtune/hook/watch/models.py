"""The models of the process, found by the parameters of its optimizers, and whether they are being trained."""

from __future__ import annotations

import functools
import sys
import weakref

from .existing import Earlier, existing_objects, instances
from .script import before_backward, running_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..types import Module, Torch
    from .optimizers import Optimizers


def learns(module: Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


class Modules:
    def __init__(self, torch: Torch, optimizers: Optimizers) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._roots: list[Module] | None = None
        #: Those that were made before this process was forked; None: it was not, or they are not known.
        self._earlier: Earlier | None = None
        self._replicas: list[Module] | None = None

    def roots(self) -> list[Any]:
        """Outermost modules that hold parameters of an optimizer, found once, when a loop begins. As long as there is no optimizer:
        those in training mode that one may be made for."""
        if self._roots is None:
            ours = {id(parameter) for parameter in self._optimizers.parameters()}
            few = None if self._earlier is None else self._earlier.and_later()
            roots = [] if few is None else _outermost(few, ours)
            # A script may have set its model apart from collections itself.
            if few is None or not ours.issubset(id(each) for root in roots for each in root.parameters()):
                roots = _outermost(instances(existing_objects(), self._torch.nn.Module), ours)
            if not ours:
                return roots
            self._roots = roots
        return self._roots

    def look_ahead(self) -> None:
        """In a fork server: for the lives that are to be forked from now on."""
        self._earlier = self._earlier or Earlier(self._torch.nn.Module)

    def all(self) -> Iterator[Any]:
        for root in self.roots():
            yield from root.modules()

    def any_of(self, *kinds: Any) -> bool:
        return any(isinstance(module, kinds) for module in self.all())

    def normalises_by_batch(self, as_it_is: bool) -> bool:
        """Whether batch normalisation of a model takes its statistics from the batch: layers in evaluation mode are frozen. Unless models
        train `as_it_is`, one that is in evaluation mode as a whole is yet to be set to training."""
        kind = self._torch.nn.modules.batchnorm._BatchNorm
        for root in self.roots():
            modules = list(root.modules())
            layers = [module for module in modules if isinstance(module, kind)]
            by_batch = any(layer.training or layer.running_mean is None for layer in layers)
            if by_batch or (layers and not as_it_is and not any(module.training for module in modules)):
                return True
        return False

    def dtypes(self) -> set[Any]:
        return {parameter.dtype for root in self.roots() for parameter in root.parameters() if parameter.requires_grad}

    def compiled(self) -> bool:
        return any(type(module).__name__ == "OptimizedModule" for module in self.all()) or any(
            getattr(module, "_compiled_call_impl", None) is not None for module in self.all()
        )

    def sync(self, wanted: bool) -> None:
        """Sets whether DistributedDataParallel exchanges gradients in the next backward pass, as its no_sync() does."""
        if self._replicas is None:
            parallel = getattr(self._torch.nn.parallel, "DistributedDataParallel", None)
            self._replicas = [m for m in self.roots() if parallel is not None and isinstance(m, parallel)]
        for replica in self._replicas:
            replica.require_backward_grad_sync = wanted


def _outermost(modules: list[Any], ours: set[int]) -> list[Any]:
    """Of these, those that no other has, with parameters among `ours`, by id(). Without any: those in training mode that learn."""
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    outer = [module for module in modules if "_parameters" in module.__dict__ and id(module) not in inner]
    if not ours:
        return [module for module in outer if module.training and learns(module)]
    return [module for module in outer if any(id(each) in ours for each in module.parameters())]


#: Optimizer steps that show in which mode the script trains.
FEW = 3


class TrainingMode:
    def __init__(self, torch: Torch, optimizers: Optimizers) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._depth = 0
        self._switched: dict[int, weakref.ref[Module]] = {}
        #: The script's model is trained in evaluation mode.
        self.trains_in_eval = False
        self._steps_looked_at = 0
        #: Modules that the script has set to training mode, by id().
        self._set_to_train: set[int] = set()

    def install(self) -> None:
        """`eval()` calls `train()` too. Of nested calls only the outermost is the script's own."""
        kind = self._torch.nn.Module
        original = kind.train
        watch = self

        @functools.wraps(original)
        def train(self: Any, mode: bool = True) -> Any:
            if watch._depth:
                return original(self, mode)
            watch._depth += 1
            try:
                return original(self, mode)
            finally:
                watch._depth -= 1
                watch._switched[id(self)] = weakref.ref(self)
                if mode:
                    watch._set_to_train.add(id(self))
                    watch._optimizers.exist()  # looks for one of another kind, before its first step

        kind.train = train

    def is_training(self) -> bool:
        torch = self._torch
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled() or not self._optimizers.exist():
            return False
        modules = list(self._trained())
        return not modules or any(module.training for module in modules) or self._trains_as_it_is(modules)

    def _trains_as_it_is(self, modules: list[Any]) -> bool:
        """Whether models that are in evaluation mode are trained in it, their batch normalisation frozen: in a loop of the script that goes on to
        a backward pass, if no step was made in training mode, nor were they set to it before the first."""
        seen = self._steps_looked_at > 0 or any(id(module) in self._set_to_train for module in modules)
        if seen and not self.trains_in_eval:
            return False
        place = next(running_places(sys._getframe()), None)
        return place is not None and before_backward(*place) is True

    def is_evaluating(self) -> bool:
        """Whether the trained model is in evaluation mode (gradients may be on)."""
        modules = list(self._trained())
        return bool(modules) and not any(module.training for module in modules)

    def stepped(self) -> None:
        """The optimizer has stepped: a model that is trained in evaluation mode is known by that."""
        if self._steps_looked_at < FEW:
            self._steps_looked_at += 1
            self.trains_in_eval = self.trains_in_eval or self.is_evaluating()

    def is_trained_module(self, module: Module) -> bool:
        """Whether the module is trained, and is in evaluation mode only while it is evaluated."""
        if self.trains_in_eval:
            return False
        if not self._optimizers.exist():
            # Its weights may be stepped by hand.
            return module.training and learns(module)
        ours = {id(parameter) for parameter in self._optimizers.parameters()}
        return any(id(parameter) in ours for parameter in module.parameters())

    def _trained(self) -> Iterator[Any]:
        ours = {id(parameter) for parameter in self._optimizers.parameters()}
        for key, reference in list(self._switched.items()):
            module = reference()
            if module is None:
                del self._switched[key]
            elif any(id(parameter) in ours for parameter in module.parameters()):
                yield module
