"""Describes the training loop that was found to the worker."""

from . import samples


def describe(hook, loader, source):
    """The `loop` message. `source` None: no batch of another size can be made."""
    modules = hook.modules
    rung = hook.rung
    switchable = source is not None and not modules.compiled()
    return {
        "t": "loop",
        "own_batch": samples.own_batch(loader) or getattr(source, "rows", None),
        "own_accumulation": None,
        "samples": samples.sample_count(loader),
        "can": {
            "batch": source is not None,
            "accumulation": source is not None,
            "amp": rung.can_amp(),
            "fp16": rung.can_fp16(),
            "checkpointing": rung.can_checkpoint(),
            "offload": rung.can_offload(),
            "switch_rung": switchable,
        },
        "warnings": warnings(hook, source),
    }


def warnings(hook, source):
    """What keeps accumulated micro-batches from being the same as one large batch, and the like."""
    found = []
    torch = hook.torch
    if hook.modules.any_of(torch.nn.modules.batchnorm._BatchNorm):
        found.append("batch_norm")
    if hook.sum_loss:
        found.append("sum_loss")
    if source is not None and source.variable:
        found.append("variable_length")
    return found
