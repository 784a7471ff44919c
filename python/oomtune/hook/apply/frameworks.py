"""Training frameworks with knobs of their own: sets those, which is better than applying ours."""

# The objects that a script gives to its framework can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
from collections.abc import Mapping

from ..watch.loader import own_batch
from .micro_batches import rebatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook
    from ..types import Module


#: Packages whose trainers are taken at their word: a loss of theirs that is no module's is not looked at.
MAKERS = ("transformers", "trl", "sentence_transformers")
#: More optimizer steps or epochs than any probe makes.
NEVER = 10**6


def transformers_arguments(hook: Hook, module: ModuleType) -> None:
    """Patches TrainingArguments, whether parsed from flags or made in the script."""
    kind = module.TrainingArguments
    original = kind.__post_init__

    @functools.wraps(original)
    def __post_init__(self: Any, *args: Any, **kwargs: Any) -> Any:
        hook.entry = "trainer"
        hook.accumulates = "transformers"
        hook.trainer_accumulation = int(getattr(self, "gradient_accumulation_steps", 1) or 1)
        if hook.settings.spares:
            hook.trainer_arguments.append(self)
        _set(self, _trainer_settings(hook, hook.trainer_accumulation))
        return original(self, *args, **kwargs)

    kind.__post_init__ = __post_init__


def transformers_trainer(hook: Hook, module: ModuleType) -> None:
    """Where Trainer adds up micro-batches, the loss that a `compute_loss` of the script's own makes is looked at, as a module's is."""
    kind = module.Trainer
    original = kind.training_step

    @functools.wraps(original)
    def training_step(self: Any, model: Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        instrumentation = hook.instrumentation
        if instrumentation is not None and instrumentation.cut.looks and _has_own_loss(self):
            given = self._prepare_inputs(inputs)
            with self.compute_loss_context_manager():
                instrumentation.cut.look_at_step(model, self.compute_loss, (model, given), ("log",))
        return original(self, model, inputs, *args, **kwargs)

    kind.training_step = training_step


def _has_own_loss(trainer: Any) -> bool:
    """Whether the script makes the loss of what its model returns."""
    package = type(trainer).compute_loss.__module__.partition(".")[0]
    return package not in MAKERS or getattr(trainer, "compute_loss_func", None) is not None


def quiet_arguments(hook: Hook) -> None:
    """In the spare of a job that runs as it stands: as if the arguments had been made in a search."""
    for arguments in hook.trainer_arguments:
        _set(arguments, _trainer_settings(hook, 1))


def _set(arguments: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if hasattr(arguments, name):
            setattr(arguments, name, value)


def _trainer_settings(hook: Hook, own: int) -> dict[str, Any]:
    settings = hook.settings
    if settings.searching:
        return {
            "max_steps": NEVER,
            "eval_strategy": "no",
            "evaluation_strategy": "no",
            "eval_on_start": False,
            "save_strategy": "no",
            "load_best_model_at_end": False,
            "report_to": [],
            "push_to_hub": False,
        }
    chosen: dict[str, Any] = {}
    if settings.rehearses:
        # What it does every so many steps it does in the first ones.
        every = max(3, settings.steps)
        chosen.update(
            {"eval_steps": every, "save_steps": every, "eval_delay": 0, "report_to": [], "push_to_hub": False}
        )
    cuts = hook.cut_choice()[0] == "loader"
    if "micro_batch" in settings.knobs and settings.micro_batch:
        if cuts:
            chosen["per_device_train_batch_size"] = settings.micro_batch
            chosen["gradient_accumulation_steps"] = settings.accumulation
        else:
            group = settings.micro_batch * settings.accumulation
            chosen["per_device_train_batch_size"] = max(1, group // own)
    if "amp" in settings.knobs:
        chosen["bf16"] = settings.rung.amp == "bf16"
        chosen["fp16"] = settings.rung.amp == "fp16"
    # Some of the blocks: the framework has a switch for all of them only.
    some = bool(settings.rung.checkpointed_blocks)
    if "checkpointing" in settings.knobs and settings.rung.checkpointing and not some:
        chosen["gradient_checkpointing"] = True
        chosen["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    native = {"micro_batch", "accumulation", "amp", "checkpointing"} if cuts else {"amp", "checkpointing"}
    hook.native.update(settings.knobs & (native - {"checkpointing"} if some else native))
    if cuts and "micro_batch" in settings.knobs and settings.accumulation > own:
        hook.report_cut()
    return chosen


def lightning_trainer(hook: Hook, module: ModuleType) -> None:
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
                instrumentation.cut.look_at_step(model, model.training_step, args, ("log", "log_dict"))
        return original(*args, **kwargs)

    setattr(training_step, "_oomtune", True)
    strategy.training_step = training_step


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
    torch = instrumentation.torch

    @functools.wraps(original)
    def dataloader(self: Any) -> Any:
        loaders = original(self)
        if self.name.startswith("train"):
            settings = hook.settings
            micro = settings.micro_batch or 1
            group = micro * settings.accumulation
            if hook.cut_choice()[0] == "model":
                group = micro = max(1, group // own)
            for loader in _loaders(torch.utils.data.DataLoader, loaders):
                if loader.batch_sampler is not None and own_batch(loader) != micro:
                    rebatch(torch, loader, group, micro, plain)
        return loaders

    setattr(dataloader, "_oomtune", True)
    kind.dataloader = dataloader


def _loaders(kind: type[Any], given: Any) -> list[Any]:
    """The loaders in the result of train_dataloader(): one, a list, a dictionary, or Lightning's CombinedLoader."""
    if isinstance(given, kind):
        return [given]
    if isinstance(given, Mapping):
        parts = given.values()
    elif isinstance(given, (list, tuple)):
        parts = given
    else:
        parts = getattr(given, "flattened", ())
    return [loader for part in parts for loader in _loaders(kind, part)]


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
