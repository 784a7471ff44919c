"""Training frameworks with knobs of their own: sets those, which is better than applying ours."""

# The objects that a script gives to its framework can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
from collections.abc import Mapping

from ..watch.loader import drawn_count, drops_last, own_batch
from .micro_batches import rebatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook
    from ..instrumentation import Instrumentation
    from ..types import Module


#: Packages whose trainers are taken at their word: a loss of theirs that is no module's is not looked at.
MAKERS = ("transformers", "trl", "sentence_transformers")
#: Lightning's own packages, and what it calls once for each batch that it takes from a loader.
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
ONCE_A_BATCH = ("on_train_batch_start", "on_train_batch_end", "on_before_backward", "on_after_backward")
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
        _check_batch(hook, _whole_batch(hook, self))
        if hook.settings.spares:
            hook.trainer_arguments.append(self)
        _set(self, _trainer_settings(hook, hook.trainer_accumulation))
        return original(self, *args, **kwargs)

    kind.__post_init__ = __post_init__


def _whole_batch(hook: Hook, arguments: Any) -> int | None:
    """Samples of a batch by the script's TrainingArguments; None: its devices share one, or it has none."""
    instrumentation = hook.instrumentation
    shared = instrumentation is None or instrumentation.torch.cuda.device_count() > 1
    return None if shared else getattr(arguments, "per_device_train_batch_size", None)


def _check_batch(hook: Hook, batch: int | None, made: int | None = None) -> None:
    """Ends the process if the script's batch is another by now than the one whose accumulation is known (it was edited, say), and nobody
    has asked for that: at the model's call each batch is cut as it comes. `made`: the size that a loader has been given here before."""
    settings = hook.settings
    if settings.searching or "micro_batch" not in settings.knobs or hook.cut_choice()[0] != "loader":
        return
    if settings.keeps_batches and batch is not None and batch not in (settings.own_batch, made):
        hook.stop_at_model("the script's batch has %d samples, and %d were known" % (batch, settings.own_batch or 0))


def transformers_control(hook: Hook, module: ModuleType) -> None:
    """In a search nothing has Trainer evaluate or save. The arguments for that stay: callbacks look at them (EarlyStoppingCallback)."""
    if hook.settings.searching:
        for name in ("should_evaluate", "should_save"):
            setattr(module.TrainerControl, name, property(lambda _: False, lambda _, value: None))


def transformers_trainer(hook: Hook, module: ModuleType) -> None:
    _look_at_trainer(hook, module.Trainer)
    if not hook.settings.searching:
        _resize_loader_of_trainer(hook, module.Trainer)


def _resize_loader_of_trainer(hook: Hook, kind: type[Any]) -> None:
    """A script may make the loader itself, whose batches then have no size by the arguments."""
    original = kind.train

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = _own_accumulation(hook)
        if hook.settings.micro_batch:
            made = self.get_train_dataloader

            @functools.wraps(made)
            def get_train_dataloader(*args: Any, **kwargs: Any) -> Any:
                loader = made(*args, **kwargs)
                _resize(hook, "transformers", own, loader, self._train_batch_size)
                return loader

            self.get_train_dataloader = get_train_dataloader
        return original(self, *args, **kwargs)

    kind.train = train


def _look_at_trainer(hook: Hook, kind: type[Any]) -> None:
    """Where Trainer adds up micro-batches, it is looked at whether they add up to the whole batch's; so is the loss that a `compute_loss`
    of the script's own makes, as a module's is."""
    original = kind.training_step
    seen: set[int] = set()

    @functools.wraps(original)
    def training_step(self: Any, model: Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        instrumentation = hook.instrumentation
        if instrumentation is not None and id(self) not in seen and _adds_up(hook, instrumentation):
            seen.add(id(self))
            given = self._prepare_inputs(inputs)
            with self.compute_loss_context_manager():
                if _has_own_loss(self):
                    instrumentation.cut.compared.look_at_step(model, self.compute_loss, (model, given), ("log",))
                items = args[0] if args else kwargs.get("num_items_in_batch")
                if _leaves_division_to_loss(self, items):
                    instrumentation.cut.compared.look_at_division(model, self.compute_loss, given, items)
        return original(self, model, inputs, *args, **kwargs)

    kind.training_step = training_step


def _has_own_loss(trainer: Any) -> bool:
    """Whether the script makes the loss of what its model returns."""
    package = type(trainer).compute_loss.__module__.partition(".")[0]
    return package not in MAKERS or getattr(trainer, "compute_loss_func", None) is not None


def _adds_up(hook: Hook, instrumentation: Instrumentation) -> bool:
    """Whether Trainer adds up micro-batches of a batch of the script. (Where ranks exchange gradients, nothing else is looked at.)"""
    more = not hook.settings.searching and hook.settings.accumulation > _own_accumulation(hook)
    return instrumentation.cut.compared.looks or (more and hook.adds_up_by_itself)


def _own_accumulation(hook: Hook) -> int:
    """Of the script, whose arguments have another one where its flags were changed."""
    by_flags = "accumulation" not in hook.settings.knobs
    return hook.settings.own_accumulation if by_flags else hook.trainer_accumulation or 1


def _leaves_division_to_loss(trainer: Any, items: Any) -> bool:
    """Whether the loss of each micro-batch is to be divided by the items (tokens, say) of the whole batch where it is made; else
    Trainer divides it by the number of micro-batches."""
    if getattr(trainer, "loss_is_scaled_for_ga", None) is not None:
        return False  # the script says it
    accepts = getattr(trainer, "model_accepts_loss_kwargs", False) and items is not None
    return accepts or getattr(trainer, "compute_loss_func", None) is not None


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
            "eval_on_start": False,
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
        elif not settings.keeps_batches:
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
            _resize(hook, "Lightning", own, loaders, plain=plain)
        return loaders

    setattr(dataloader, "_oomtune", True)
    kind.dataloader = dataloader


def _resize(hook: Hook, framework: str, own: int, given: Any, made: int | None = None, plain: bool = False) -> None:
    """Has the training's loaders yield what the framework adds up: micro-batches, or whole batches where they are cut at the model's
    call, which are mostly the script's own. `own`: the script's own accumulation. `made`: the size of batches that a framework has set
    itself which weighs their losses by their items. Ends the process where it would add up others than the script's: larger ones, or
    of its last batch another part."""
    assert hook.instrumentation is not None
    torch, settings = hook.instrumentation.torch, hook.settings
    micro = settings.micro_batch or 1
    group = micro * settings.accumulation
    at_model = hook.cut_choice()[0] == "model"
    if at_model and settings.keeps_batches:
        return
    if at_model:
        group = micro = max(1, group // own)
    loaders = _loaders(torch.utils.data.DataLoader, given)
    for loader in loaders:
        if made is None:
            _check_batch(hook, own_batch(loader), micro)
        if loader.batch_sampler is not None and (drops_last(loader) or own_batch(loader) not in (micro, made)):
            rebatch(torch, loader, group, micro, plain)
    if at_model or settings.accumulation <= own:
        return
    if not loaders or any(loader.batch_sampler is None for loader in loaders):
        hook.stop_at_model("the script's loader makes batches that %s cannot have smaller" % framework)
    ragged = (loader for loader in loaders if (drawn_count(loader) or 0) % (group // own) and not drops_last(loader))
    if own > 1 and made is None and any(ragged):
        # Each of the script's batches counts alike then, however few samples the last one has.
        hook.stop_at_model("%s is to accumulate %d batches, and the last one of a pass is smaller" % (framework, own))
    if any(drawn_count(loader) is None and (made is None or drops_last(loader)) for loader in loaders):
        hook.stop_at_model("how many samples the last batch of the script's stream has is not known before")


def _loaders(kind: type[Any], given: Any) -> list[Any]:
    """The loaders in the result of train_dataloader(): one, which accelerate may have wrapped, a list, a dictionary, or Lightning's
    CombinedLoader."""
    if isinstance(given, kind):
        return [getattr(given, "base_dataloader", given)]
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
