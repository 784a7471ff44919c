"""Describes the training loop that was found to the worker."""

from __future__ import annotations

from ..watch.loader import own_batch, sample_count
from ..watch.trees import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..instruments import Instruments
    from ..messages import TrainingLoop
    from ..probe.samples import Source
    from ..types import Loader


#: Where accumulated micro-batches are not the same as one large batch.
DIFFERENCES = {
    "batch_norm": "Batch normalisation takes its statistics from each micro-batch, not from the whole batch.",
    "sum_loss": "A loss sums over the batch: accumulated micro-batches are weighed as if it were a mean.",
    "token_mean": "A loss is a mean over tokens: micro-batches are weighed by samples, not by tokens.",
    "variable_length": "Samples differ in length: a mean over tokens is weighed by samples when micro-batches accumulate.",
    "uncuttable": "The data set yields batches that cannot be cut: they are used whole, whatever memory they take.",
    "dataset_on_device": "The data set lies on the device and takes memory from the training.",
}

#: What torch's cross-entropy leaves out of its mean, by default.
IGNORED = -100


def describe(
    instruments: Instruments, loader: Loader | None, source: Source | None, rows: int | None = None
) -> TrainingLoop:
    """The `loop` message. `source` None: no batch of another size can be made. `rows`: samples that the model is called with by
    a loop without a loader; None: that cannot be changed."""
    rung = instruments.rung
    can = source is not None or rows is not None
    return {
        "t": "loop",
        "own_batch": rows if loader is None else own_batch(loader) or getattr(source, "rows", None),
        "own_accumulation": instruments.hook.trainer_accumulation,
        "samples": None if loader is None else sample_count(loader),
        "place": "loader" if rows is None else "call",
        "can": {
            "batch": can,
            "accumulation": can,
            "amp": rung.can_amp(),
            "fp16": rung.can_fp16(),
            "checkpointing": rung.can_checkpoint(),
            "offload": rung.can_offload(),
            "switch_rung": can and not instruments.modules.compiled(),
        },
        "warnings": warnings(instruments, source),
    }


def warnings(instruments: Instruments, source: Source | None) -> list[str]:
    """Codes of DIFFERENCES that hold for this loop, as far as can be seen."""
    found: list[str] = []
    torch = instruments.torch
    if instruments.modules.any_of(torch.nn.modules.batchnorm._BatchNorm):
        found.append("batch_norm")
    weighed = instruments.hook.cut_choice()[0] == "loader"
    if instruments.sum_loss and weighed:
        found.append("sum_loss")
    if source is None:
        return found
    batch = source.make(2)
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]
    if weighed and any(not t.is_floating_point() and t.dim() > 1 and bool((t == IGNORED).any()) for t in tensors):
        found.append("token_mean")
    elif weighed and source.variable:
        found.append("variable_length")
    if any(t.is_cuda for t in tensors):
        found.append("dataset_on_device")
    return found
