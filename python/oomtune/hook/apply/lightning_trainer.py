"""Lightning's Trainer: sets its own knobs, which is better than applying ours."""

# The objects that a script gives to its framework can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools

from .framework_loaders import NEVER, resize_loaders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook
    from ..types import Module


#: Lightning's own packages, and what it calls once for each batch that it takes from a loader.
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
ONCE_A_BATCH = ("on_train_batch_start", "on_train_batch_end", "on_before_backward", "on_after_backward")


def patch_trainer(hook: Hook, module: ModuleType) -> None:
    kind = module.Trainer
    original = kind.fit

    @functools.wraps(original)
    def fit(self: Any, model: Module, *args: Any, **kwargs: Any) -> Any:
        hook.entry = "lightning"
        own = hook.trainer_accumulation = int(getattr(self, "accumulate_grad_batches", 1) or 1)
        automatic = bool(getattr(model, "automatic_optimization", True))
        hook.accumulates = "Lightning" if automatic else None
        settings = hook.settings
        if automatic:
            _look_at_steps(hook, self, model)
        if settings.searching:
            _endless(self)
            return original(self, model, *args, **kwargs)
        if settings.rehearses:
            _rehearsed(self, max(3, settings.steps) * own)
        if "micro_batch" in settings.knobs and automatic:
            if settings.accumulation > own and hook.cut_choice()[0] == "loader":
                _check_calls_once_a_batch(hook, self, model)
            # Lightning counts the loader's batches when it takes it: they must have their size before.
            import importlib

            connector = importlib.import_module(
                module.__name__.replace("trainer.trainer", "trainer.connectors.data_connector")
            )
            _rebatch_training(hook, own, connector._DataLoaderSource, plain=getattr(self, "world_size", 1) > 1)
            if hook.cut_choice()[0] == "loader":
                self.accumulate_grad_batches = settings.accumulation
                hook.native.add("accumulation")
                _count_parts(self, settings.accumulation // own)
        return original(self, model, *args, **kwargs)

    kind.fit = fit


def _look_at_steps(hook: Hook, trainer: Any, model: Module) -> None:
    """Where Lightning adds up micro-batches, the loss that `training_step` makes is looked at, as a module's own is."""
    strategy: Any = getattr(trainer, "strategy", None)
    instrumentation = hook.instrumentation
    original = getattr(strategy, "training_step", None)
    if instrumentation is None or original is None or hasattr(original, "_oomtune"):
        return

    @functools.wraps(original)
    def training_step(*args: Any, **kwargs: Any) -> Any:
        # Of the batch, which comes first, and its number.
        if args and not kwargs:
            with strategy.precision_plugin.train_step_context():
                instrumentation.cut.compared.look_at_step(model, model.training_step, args, ("log", "log_dict"))
        # It may call parts of the model alone: all of its batch is resized here where no loader makes it.
        return instrumentation.cut.calls.around(model, original, args, kwargs)

    setattr(training_step, "_oomtune", True)
    strategy.training_step = training_step


def _check_calls_once_a_batch(hook: Hook, trainer: Any, model: Module) -> None:
    """Ends the process if the script counts on whole batches: the next one cuts at the model's call, where Lightning sees them."""
    for one in (model, *trainer.callbacks):
        if type(one).__name__ == "GradientAccumulationScheduler":
            hook.stop_at_model("GradientAccumulationScheduler sets how many batches Lightning accumulates")
        for name in ONCE_A_BATCH:
            if _overrides(type(one), name):
                hook.stop_at_model("%s.%s() is to be called once for each batch" % (type(one).__name__, name))


def _overrides(kind: type[Any], name: str) -> bool:
    """Whether a class that is none of Lightning's own has a method of this name, by itself or by one like it."""
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in LIGHTNING:
            return False
        if name in vars(base):
            return True
    return False


def _count_parts(trainer: Any, parts: int) -> None:
    """Scales limits that the script gave in its own batches: Lightning now sees each batch in `parts` parts."""
    for name in ("limit_train_batches", "val_check_interval"):
        value = getattr(trainer, name, None)
        if type(value) is int:  # a float is a part of the epoch
            setattr(trainer, name, value * max(1, parts))


def _rebatch_training(hook: Hook, own: int, kind: type[Any], plain: bool) -> None:
    original = kind.dataloader
    instrumentation = hook.instrumentation
    if instrumentation is None or hasattr(original, "_oomtune"):
        return

    @functools.wraps(original)
    def dataloader(self: Any) -> Any:
        loaders = original(self)
        if self.name.startswith("train"):
            resize_loaders(hook, "Lightning", own, loaders, plain=plain)
        return loaders

    setattr(dataloader, "_oomtune", True)
    kind.dataloader = dataloader


def _rehearsed(trainer: Any, batches: int) -> None:
    """Lightning validates by the number of batches that it counted before: passes are cut short by its own limits."""
    trainer.loggers = []
    # A float is a part of the epoch, which is no longer than its limit.
    for name in ("limit_train_batches", "val_check_interval"):
        own = getattr(trainer, name, None)
        if type(own) is int:
            setattr(trainer, name, min(own, batches))
        elif name == "limit_train_batches":
            setattr(trainer, name, batches)
    if trainer.check_val_every_n_epoch is not None:
        trainer.check_val_every_n_epoch = 1


def _endless(trainer: Any) -> None:
    """Turns off validation, checkpoints, loggers, and every end but the worker's."""
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0
    trainer.fit_loop.max_epochs = NEVER
    trainer.fit_loop.epoch_loop.max_steps = -1
    drop = ("ModelCheckpoint", "EarlyStopping", "LearningRateMonitor", "DeviceStatsMonitor", "Timer")
    trainer.callbacks = [callback for callback in trainer.callbacks if type(callback).__name__ not in drop]
    trainer.loggers = []
