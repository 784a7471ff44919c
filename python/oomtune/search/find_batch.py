"""`find_batch()`: the search of the command line, for a function."""

from __future__ import annotations

import os
import re
import sys

from ..errors import OomtuneError
from ..program import call
from ..recommendations import Recommendation, from_search
from .function_script import FunctionScript
from .script_folder import script_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable


def find_batch(
    train_fn: Callable[..., Any],
    args: Iterable[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    name: str | None = None,
    device: str | None = None,
    budget: str | None = None,
    gpus: int | None = None,
    effective_batch: int | None = None,
    min_batch: int | None = None,
    max_batch: int | None = None,
    amp: str | None = None,
    checkpointing: str | None = None,
    accumulation: str | None = None,
    cut: str | None = None,
    exact: bool = False,
    objective: str | None = None,
    headroom: float | None = None,
    steps: int | None = None,
    timeout: float | None = None,
    max_launches: int | None = None,
    redis: str | None = None,
    verbose: bool = True,
) -> Recommendation:
    """Finds the largest micro-batch with which `train_fn(*args, **kwargs)` trains, in fresh processes; nothing is trained here.

    Made for notebooks. The function goes to the fresh process by its source, with the functions and classes that it uses; other
    values are pickled. If one parameter has no value, each size is passed as that one, or, where it is nothing but the batch
    size of a DataLoader, set there; otherwise the sizes are set in the function's own loop, as in a script.

    All other arguments are the options of `oomtune find-batch`, whose answer this is: `budget="24GiB"`, `device="cuda:0"`. It is
    recorded as `name` (default: the function's name). `verbose`: show the search's progress.

    Raises OomtuneError: OOMTUNE_EXHAUSTED if nothing fits, OOMTUNE_JOB_FAILED if the function fails for another reason, and those
    of the command line.
    """
    if os.environ.get("OOMTUNE_HOOK") in ("probe", "measure"):
        raise OomtuneError(
            "OOMTUNE_USAGE",
            "find_batch() was called in a process that a search had started.",
            "Call it outside of the function that is searched.",
        )
    if not callable(train_fn):
        raise OomtuneError(
            "OOMTUNE_USAGE",
            "Expected the function that trains, got %s." % type(train_fn).__name__,
            "Hand over the function itself, without a call: find_batch(train), with its arguments as args=(...).",
        )
    script = FunctionScript(train_fn, args, kwargs or {})
    name = name or _name(train_fn)
    options = {
        "--name": name,
        "--device": device,
        "--budget": budget,
        "--gpus": gpus,
        "--effective-batch": effective_batch,
        "--min-batch": min_batch,
        "--max-batch": max_batch,
        "--amp": amp,
        "--checkpointing": checkpointing,
        "--accumulation": accumulation,
        "--cut": cut,
        "--objective": objective,
        "--headroom": headroom,
        "--steps": steps,
        "--timeout": timeout,
        "--max-launches": max_launches,
        "--redis": redis,
    }
    words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    if exact:
        words.append("--exact")
    with script_folder() as folder:
        path = script.write(folder, re.sub(r"\W", "_", name))
        command = [sys.executable, path, *script.words]
        document = call(["find-batch", "--json", *words, "--", *command], progress=_show if verbose else None)
    notes: list[str] = document.get("notes") or []
    for note in notes if verbose else ():
        _show("note: " + note)
    if document.get("status") != "found":
        raise _nothing_found(document, script)
    return from_search(document)


#: What to do where no size could be set, by how the function takes sizes.
_TAKE_SIZES = {
    "loop": "Give the function a parameter for its batch size, `def train(batch_size)`, and let it train for some steps with an optimizer.",
    "loader": "Let the function train for some steps with an optimizer. Where it cannot, copy the size first (`size = batch_size`): then each size is passed to a process of its own.",
    "argument": "Use the parameter as the size of the batches that the function trains on.",
}


def _name(function: Any) -> str:
    while hasattr(function, "func"):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "function" if name == "<lambda>" else str(name)


def _show(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _nothing_found(document: dict[str, Any], script: FunctionScript) -> OomtuneError:
    failure: dict[str, Any] = document.get("failure") or {}
    said = "%s: %s" % (failure.get("class", "unknown"), failure.get("evidence") or "no line tells why")
    advice = str(failure.get("advice") or "Look at .document of this error for each size that was tried.")
    if "{micro_batch}" in advice:  # the advice for a command line
        advice = _TAKE_SIZES[script.takes_sizes]
    if document.get("status") == "exhausted":
        return OomtuneError("OOMTUNE_EXHAUSTED", "No batch size fits (%s)." % said, advice, document)
    return OomtuneError("OOMTUNE_JOB_FAILED", "The function failed in the search (%s)." % said, advice, document)
