"""Cross-entropy of a linear layer's output, in chunks of rows: the whole output is never in memory, and the gradients of the layer's
input and weight are made in the forward pass, chunk by chunk. The mathematics are those of the two functions of torch."""

from __future__ import annotations

import functools

from .logit_changes import change_in_place, gradient_in_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ..types import MaybeTensors, Tensor, Torch
    from .logit_changes import Changes

#: Elements of a chunk's output, at most. Larger chunks keep a GPU busy; a processor is busy with few rows.
ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 27}
#: Of a GPU's memory a chunk's output takes at most one part in so many, in single precision.
PARTS_OF_MEMORY = 128
#: Of a small output, too, most is never in memory.
LEAST_CHUNKS = 4
LEAST_ROWS = 16
#: Matrix products work on tiles of so many rows; what is left of the last one is computed for nothing.
TILE_ROWS = 128


class Settings:
    """What the loss is: `dtype`, of the layer's output; `loss_dtype`, in which torch would compute the loss; `changes`: to
    each element of the output before that."""

    def __init__(
        self,
        dtype: Any,
        loss_dtype: Any,
        class_weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        changes: Changes = (),
    ) -> None:
        self.dtype = dtype
        self.loss_dtype = loss_dtype
        self.class_weight = class_weight
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.changes = changes


def chunked_cross_entropy(
    torch: Torch, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, settings: Settings
) -> Tensor:
    """`hidden`: rows x inputs; `target`: a class for each row. A loss, or with reduction `none` one for each row."""
    return _function(torch).apply(hidden, weight, bias, target, settings)


def chunk_rows(rows: int, most: int) -> int:
    """How many rows at a time, of `rows` in all, where `most` may be in memory."""
    each = max(LEAST_ROWS, min(most, -(-rows // LEAST_CHUNKS)))
    return each if each < TILE_ROWS else each - each % TILE_ROWS


class _Pass:
    """One pass over the chunks. `needs`: of which of input, weight and bias the gradients are wanted."""

    def __init__(
        self, torch: Torch, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, settings: Settings
    ) -> None:
        self._torch = torch
        self._hidden = hidden
        self._weight = weight.to(settings.dtype)
        self._bias = None if bias is None else bias.to(settings.dtype)
        self._target = target
        self._settings = settings
        self._exact = _exact(torch, settings)
        class_weight = settings.class_weight
        self._class_weight = None if class_weight is None else class_weight.to(self._exact)
        self._classes = weight.shape[0]

    def denominator(self) -> Tensor:
        """What a mean divides by."""
        keep = self._target != self._settings.ignore_index
        if self._class_weight is None:
            return keep.sum().to(self._exact)
        return (self._class_weight[self._target.masked_fill(~keep, 0)] * keep).sum()

    def run(self, scale: Tensor | None, needs: Sequence[bool]) -> tuple[Tensor, MaybeTensors]:
        """(the loss of each row, gradients of input, weight and bias). `scale`: of the gradients, one number or one for each row;
        None: no gradients."""
        torch, hidden = self._torch, self._hidden
        rows = chunk_rows(hidden.shape[0], _elements(torch, hidden.device) // self._classes)
        losses = hidden.new_empty(hidden.shape[0], dtype=self._exact)
        wanted = [scale is not None and need for need in needs]
        of_hidden = torch.empty_like(hidden) if wanted[0] else None
        of_weight = torch.zeros_like(self._weight, dtype=self._exact) if wanted[1] else None
        of_bias = torch.zeros_like(self._bias, dtype=self._exact) if wanted[2] and self._bias is not None else None
        for start in range(0, hidden.shape[0], rows):
            part = slice(start, start + rows)
            inputs = hidden[part].to(self._settings.dtype)
            logits = torch.nn.functional.linear(inputs, self._weight, self._bias).to(self._exact)
            logits, kept = change_in_place(logits, self._settings.changes)
            log = torch.log_softmax(logits, -1)
            del logits
            factor = None if scale is None else scale[part] if scale.dim() else scale
            gradient = self._rows(log, self._target[part], factor, losses[part])
            del log
            if gradient is None:
                continue
            gradient = gradient_in_place(gradient, self._settings.changes, kept).to(self._settings.dtype)
            if of_hidden is not None:
                of_hidden[part] = gradient @ self._weight
            if of_weight is not None and of_weight.dtype == gradient.dtype:
                of_weight.addmm_(gradient.t(), inputs)
            elif of_weight is not None:
                of_weight += gradient.t() @ inputs
            if of_bias is not None:
                of_bias += gradient.sum(0, dtype=self._exact)
        return losses, (of_hidden, of_weight, of_bias)

    def _rows(self, log: Tensor, target: Tensor, factor: Tensor | None, losses: Tensor) -> Tensor | None:
        """Writes the losses of a chunk's rows; returns the gradient of its output, made in the memory of `log`, the logarithms of
        the probabilities."""
        smoothing, weights = self._settings.label_smoothing, self._class_weight
        keep = target != self._settings.ignore_index
        target = target.masked_fill(~keep, 0).unsqueeze(1)
        own = log.new_ones(len(target)) if weights is None else weights[target.squeeze(1)]
        loss = -log.gather(1, target).squeeze(1) * own
        if smoothing:
            others = -(log.sum(1) if weights is None else log @ weights)
            loss = (1 - smoothing) * loss + smoothing / self._classes * others
        losses.copy_(loss.masked_fill(~keep, 0.0))
        if factor is None:
            return None
        factor = (keep * factor).to(log.dtype)
        each = smoothing / self._classes
        total = self._classes if weights is None else weights.sum()
        gradient = log.exp_().mul_((((1 - smoothing) * own + each * total) * factor).unsqueeze(1))
        if smoothing:
            spread = (each * factor).unsqueeze(1)
            gradient.sub_(spread if weights is None else spread * weights)
        gradient.scatter_add_(1, target, -((1 - smoothing) * own * factor).unsqueeze(1))
        return gradient


@functools.lru_cache(maxsize=1)
def _function(torch: Torch) -> Any:
    class ChunkedCrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, settings: Settings
        ) -> Any:
            ctx.settings, ctx.made = settings, None
            ctx.save_for_backward(hidden, weight, bias, target)
            with torch.autocast(hidden.device.type, enabled=False):
                chunks = _Pass(torch, hidden, weight, bias, target, settings)
                needs = ctx.needs_input_grad[:3]
                divisor = chunks.denominator() if settings.reduction == "mean" else None
                # In fp16 small gradients need the loss's scale first; each row's own is known only in the backward pass.
                early = any(needs) and settings.reduction != "none" and settings.dtype != torch.float16
                scale = _scale(torch, hidden.new_ones((), dtype=_exact(torch, settings)), divisor) if early else None
                losses, made = chunks.run(scale, needs)
                if early:
                    ctx.made = made
                if settings.reduction == "none":
                    return losses.to(settings.loss_dtype)
                loss = losses.sum()
                return (loss if divisor is None else loss / divisor).to(settings.loss_dtype)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, gradient: Tensor) -> Any:
            settings = ctx.settings
            made, ctx.made = ctx.made, None
            hidden, weight, bias, target = ctx.saved_tensors
            with torch.autocast(hidden.device.type, enabled=False):
                if made is None:
                    # A second backward pass, or one whose scale has to be known.
                    chunks = _Pass(torch, hidden, weight, bias, target, settings)
                    divisor = chunks.denominator() if settings.reduction == "mean" else None
                    wide = gradient.to(_exact(torch, settings))
                    _, made = chunks.run(_scale(torch, wide, divisor), ctx.needs_input_grad[:3])
                else:
                    for each in made:
                        if each is not None:
                            each.mul_(gradient.to(each.dtype))
                own = (hidden, weight, bias)
                return (*(None if each is None else each.to(of.dtype) for each, of in zip(made, own)), None, None)

    return ChunkedCrossEntropy


def _elements(torch: Torch, device: Any) -> int:
    most = ELEMENTS.get(device.type, ELEMENTS["cuda"])
    if device.type != "cuda":
        return most
    return min(most, torch.cuda.get_device_properties(device).total_memory // PARTS_OF_MEMORY // 4)


def _exact(torch: Torch, settings: Settings) -> Any:
    """Single precision or better, whatever the loss is to be in."""
    return torch.float32 if settings.dtype in (torch.float16, torch.bfloat16) else settings.dtype


def _scale(torch: Torch, gradient: Tensor, divisor: Tensor | None) -> Tensor:
    """Of a loss of no rows at all the gradients are zero."""
    return gradient if divisor is None else gradient / torch.where(divisor == 0, torch.ones_like(divisor), divisor)
