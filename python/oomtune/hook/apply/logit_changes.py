"""What a model does to each of its logits before the loss: scales them (Cohere, Granite) or caps them softly (Gemma 2: cap * tanh(logits / cap))."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence, Tuple

    from ..types import Tensor, Torch
    from .head_call import Source

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


def scale_of(torch: Torch, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], source: Source) -> Tensor | None:
    """The tensor of one number that a call of `name` scales the logits by, where the head's input may be scaled instead, which gives it
    its gradient, too; None: something else, or it may not. Heads with a bias and soft caps before it do not scale with their input, and
    in half precision the input would be rounded once more."""
    if name not in SCALINGS or len(args) != 2 or kwargs or type(args[1]) not in (torch.Tensor, torch.nn.Parameter):
        return None
    scale, head = args[1], source.head
    if scale.numel() != 1:
        return None
    if head.bias is not None or any(change == "tanh" for change, _ in source.changes):
        return None
    if head.dtype not in (torch.float32, torch.float64) or {source.dtype, source.hidden.dtype} != {head.dtype}:
        return None
    alike = scale.dtype == head.dtype and scale.device == source.hidden.device and scale.dim() <= 1
    return scale if alike else None


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
