"""Keras 3 on torch: its layers are modules, but its optimizers are none of torch's, and `apply(gradients, variables)` is their step."""

# Keras's objects have no types here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import inspect
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..hook import Hook
    from ..types import Tensor


class KerasOptimizer:
    """What the hook asks of an optimizer, of one of Keras's."""

    def __init__(self, optimizer: Any, variables: list[Any]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.param_groups: list[dict[str, Any]] = [{"params": [variable.value for variable in variables]}]
        #: Makes the step that has been asked for.
        self.apply: Callable[[], None] | None = None

    @property
    def state(self) -> dict[str, dict[str, Tensor]]:
        """It is made when Keras builds the optimizer, before the first step, and is not made again."""
        optimizer = self._optimizer()
        held = [] if optimizer is None else optimizer.variables
        return {variable.path: {"value": variable.value} for variable in held}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        if self.apply is not None:
            self.apply()


def watch_optimizers(hook: Hook, module: ModuleType) -> None:
    """Patches `keras.src.optimizers.base_optimizer`, of which all of its optimizers are made."""
    kind = module.BaseOptimizer
    build, apply = kind.build, kind.apply
    known: weakref.WeakKeyDictionary[Any, KerasOptimizer] = weakref.WeakKeyDictionary()

    @functools.wraps(build)
    def built(self: Any, variables: Any) -> Any:
        variables = list(variables)
        result = build(self, variables)
        watch = hook.instrumentation
        # (JAX's or TensorFlow's arrays are no tensors of torch, which may be imported beside)
        if watch is not None and self not in known and all(isinstance(v.value, watch.torch.Tensor) for v in variables):
            # fit() has counted the batches of a pass: with smaller ones it would end before the data does.
            hook.counts_batches = "Keras"
            known[self] = KerasOptimizer(self, variables)
            watch.optimizers.add(known[self])
        return result

    @functools.wraps(apply)
    def applied(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        watched = known.get(self)
        if watched is None or watched.apply is not None:
            # (where it is built by its first step, that one is not seen)
            apply(self, grads, trainable_variables)
            return
        watched.apply = functools.partial(apply, self, grads, trainable_variables)
        try:
            watched.step()
        finally:
            watched.apply = None

    kind.build, kind.apply = built, applied


#: The samples of a batch where fit() is not told.
USUAL = 32


def watch_fit(hook: Hook, module: ModuleType) -> None:
    """Patches `keras.src.backend.torch.trainer`: fit() counts the batches of a pass by the batch that it is given, so that another one is given to it."""
    kind = module.TorchTrainer
    original = kind.fit

    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(*args: Any, **kwargs: Any) -> Any:
        settings = hook.settings
        own = settings.own_batch
        given = signature.bind(*args, **kwargs)
        told = given.arguments
        arrays = all(hasattr(leaf, "shape") for leaf in module.tree.flatten(told.get("x")))
        if "micro_batch" in settings.knobs and own == (told.get("batch_size") or USUAL) and arrays:
            # Validation is in batches of its own.
            told["validation_batch_size"] = told.get("validation_batch_size") or own
            told["batch_size"] = settings.wanted
        return original(*given.args, **given.kwargs)

    kind.fit = fit
