"""Describes to the worker the training loop that was found."""

from __future__ import annotations

from ..watch.batch_tree import leaves
from ..watch.loader import own_batch, sample_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..instrumentation import Instrumentation
    from ..messages import TrainingLoop
    from ..probe.batch_factory import BatchFactory
    from ..types import Loader


#: Why accumulated micro-batches may differ from one large batch.
DIFFERENCES = {
    "batch_norm": "Batch normalisation takes its statistics from each micro-batch, not from the whole batch.",
    "sum_loss": "A loss sums over the batch: accumulated micro-batches are weighed as if it were a mean.",
    "token_mean": "A loss is a mean over tokens: micro-batches are weighed by samples, not by tokens.",
    "variable_length": "Samples differ in length: a mean over tokens is weighed by samples when micro-batches accumulate.",
    "uncuttable": "The data set yields batches that cannot be cut: they are used whole, whatever memory they take.",
    "own_batches": "A loader makes batches of %d here, where %d were recorded: they stay as they are, and those larger than %d are cut.",
    "dataset_on_device": "The data set lies on the device and takes memory from the training.",
}

#: The label that torch's cross-entropy leaves out of its mean, by default.
IGNORED = -100


def describe(
    instrumentation: Instrumentation,
    loader: Loader | None,
    factory: BatchFactory | None,
    rows: int | None = None,
    variables: bool = False,
) -> TrainingLoop:
    """The `loop` message. `factory` None: the loader's batch size cannot be changed. `rows`: samples per call of the model in
    a loop without a loader; None: they cannot be changed. `variables`: those of the script are set with the loader's batch size."""
    rung = instrumentation.rung
    can = factory is not None or rows is not None
    why_not = rung.why_not()
    return {
        "t": "loop",
        "own_batch": rows if loader is None else own_batch(loader) or getattr(factory, "rows", None),
        "own_accumulation": instrumentation.hook.trainer_accumulation,
        "samples": None if loader is None else sample_count(loader),
        "place": "call" if rows is not None else "variables" if variables else "loader",
        "can": {
            "batch": can,
            "accumulation": can,
            "amp": rung.can_amp(),
            "fp16": rung.can_fp16(),
            "checkpointing": rung.can_checkpoint(),
            "checkpointed_blocks": rung.block_count(),
            "offload": rung.can_offload(),
            "offloaded_part": rung.can_offload_part(),
            "chunked_loss": rung.can_chunk_loss(),
            "activation_memory_budget": rung.activation_budget.possible(),
            "optimizer_on_host": rung.optimizer_on_host.possible(),
            "optimizer_8bit": "optimizer_8bit" not in why_not,
            "bf16_weights": "bf16_weights" not in why_not,
            "switch_rung": can and not instrumentation.modules.compiled(),
        },
        "why_not": why_not,
        "warnings": warnings(instrumentation, factory),
    }


def warnings(instrumentation: Instrumentation, factory: BatchFactory | None) -> list[str]:
    """Codes of the DIFFERENCES that hold for this loop, as far as known."""
    found: list[str] = []
    torch, mode = instrumentation.torch, instrumentation.training_mode
    takes_none = mode.is_evaluating() and mode.is_training()  # trained in evaluation mode
    if instrumentation.modules.normalises_by_batch(as_it_is=takes_none):
        found.append("batch_norm")
    weighed = instrumentation.hook.cut_choice()[0] == "loader"
    if instrumentation.sum_loss and weighed:
        found.append("sum_loss")
    if factory is None:
        return found
    batch = factory.make(2)
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]
    if weighed and any(not t.is_floating_point() and t.dim() > 1 and bool((t == IGNORED).any()) for t in tensors):
        found.append("token_mean")
    elif weighed and factory.variable_length:
        found.append("variable_length")
    if any(t.is_cuda for t in tensors):
        found.append("dataset_on_device")
    return found
