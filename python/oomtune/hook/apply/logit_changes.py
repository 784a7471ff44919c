"""What a model does to each of its logits before the loss: scales them (Cohere, Granite) or caps them softly (Gemma 2: cap * tanh(logits / cap))."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence, Tuple

    from ..types import Tensor, Torch

    #: The name of a function of torch, and its number.
    Change = Tuple[str, Optional[float]]
    Changes = Sequence[Change]

#: By the names of what a script calls.
SCALINGS = {
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), "mul"),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__", "__div__"), "div"),
}


def change_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Change | None:
    """What a call of `name` does to the tensor that is its first argument; None: something else."""
    if kwargs:
        return None
    if name == "tanh":
        return ("tanh", None) if len(args) == 1 else None
    number = args[1] if len(args) == 2 else None
    return (SCALINGS[name], number) if name in SCALINGS and type(number) in (int, float) else None


def changed(torch: Torch, logits: Tensor, changes: Changes) -> Tensor:
    for name, number in changes:
        logits = getattr(torch, name)(logits, *(() if number is None else (number,)))
    return logits


def change_in_place(logits: Tensor, changes: Changes) -> tuple[Tensor, list[Tensor]]:
    """(what `logits` become, largely in their memory; what `gradient_in_place` needs)."""
    kept: list[Tensor] = []
    for name, number in changes:
        if number is None:
            logits = logits.clone() if kept and kept[-1] is logits else logits
            kept.append(logits.tanh_())
        elif kept and kept[-1] is logits:
            logits = logits * number if name == "mul" else logits / number
        else:
            logits = logits.mul_(number) if name == "mul" else logits.div_(number)
    return logits, kept


def gradient_in_place(gradient: Tensor, changes: Changes, kept: list[Tensor]) -> Tensor:
    """The gradient of the logits, of that of what they became; uses up `kept`."""
    for name, number in reversed(changes):
        if number is None:
            gradient.mul_(kept.pop().square_().neg_().add_(1))
        else:
            gradient = gradient.mul_(number) if name == "mul" else gradient.div_(number)
    return gradient
