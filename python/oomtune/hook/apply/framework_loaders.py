"""Loaders whose batches a framework adds up by itself."""

# The objects that a script gives to its framework can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping

from ..watch.loader import drawn_count, drops_last, own_batch
from .micro_batches import rebatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..hook import Hook

#: More optimizer steps or epochs than any probe makes.
NEVER = 10**6


def check_batch(hook: Hook, batch: int | None, made: int | None = None) -> None:
    """Ends the process if the script's batch is another by now than the one whose accumulation is known (it was edited, say), and nobody
    has asked for that: at the model's call each batch is cut as it comes. `made`: the size that a loader has been given here before."""
    settings = hook.settings
    if settings.searching or "micro_batch" not in settings.knobs or hook.cut_choice()[0] != "loader":
        return
    if settings.keeps_batches and batch is not None and batch not in (settings.own_batch, made):
        hook.stop_at_model("the script's batch has %d samples, and %d were known" % (batch, settings.own_batch or 0))


def resize_loaders(
    hook: Hook, framework: str, own: int, given: Any, made: int | None = None, plain: bool = False
) -> None:
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
            check_batch(hook, own_batch(loader), micro)
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
