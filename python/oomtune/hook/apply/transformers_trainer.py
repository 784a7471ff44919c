"""transformers' Trainer: sets its own knobs, which is better than applying ours."""

# The objects that a script gives to its framework can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools

from .framework_loaders import NEVER, check_batch, resize_loaders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook
    from ..instrumentation import Instrumentation
    from ..types import Module


#: Packages whose trainers are taken at their word: a loss of theirs that is no module's is not looked at.
MAKERS = ("transformers", "trl", "sentence_transformers")


def patch_arguments(hook: Hook, module: ModuleType) -> None:
    """Patches TrainingArguments, whether parsed from flags or made in the script."""
    kind = module.TrainingArguments
    original = kind.__post_init__

    @functools.wraps(original)
    def __post_init__(self: Any, *args: Any, **kwargs: Any) -> Any:
        hook.entry = "trainer"
        hook.accumulates = "transformers"
        hook.trainer_accumulation = int(getattr(self, "gradient_accumulation_steps", 1) or 1)
        check_batch(hook, _whole_batch(hook, self))
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


def patch_control(hook: Hook, module: ModuleType) -> None:
    """In a search nothing has Trainer evaluate or save. The arguments for that stay: callbacks look at them (EarlyStoppingCallback)."""
    if hook.settings.searching:
        for name in ("should_evaluate", "should_save"):
            setattr(module.TrainerControl, name, property(lambda _: False, lambda _, value: None))


def patch_trainer(hook: Hook, module: ModuleType) -> None:
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
                resize_loaders(hook, "transformers", own, loader, self._train_batch_size)
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
