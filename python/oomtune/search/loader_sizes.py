"""Whether a function uses its size for nothing but its loaders: then a search can set sizes in the function's own loop."""

from __future__ import annotations

import ast
import inspect
import re

from ..errors import OomtuneError
from .sources import source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What is called, and the keyword that takes the size of its batches.
_TAKES = (
    (re.compile(r"Loader$"), "batch_size"),
    (re.compile(r"TrainingArguments$"), "per_device_train_batch_size"),
)


def sizes_loaders_only(function: Any, parameter: str) -> bool:
    """False if the function uses the parameter for anything else, or its source is not known."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return False
    try:
        tree = ast.parse(source_of(function).text)
    except OomtuneError:
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    allowed = {id(value) for call in calls for value in _sizes(call)}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == parameter]
    return bool(uses) and all(id(use) in allowed for use in uses)


def _sizes(call: ast.Call) -> list[ast.expr]:
    """The values that say how large the call's batches are."""
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    return [
        keyword.value
        for takes, argument in _TAKES
        if takes.search(name)
        for keyword in call.keywords
        if keyword.arg == argument
    ]
