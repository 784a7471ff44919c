"""For the Trainer of transformers."""

from __future__ import annotations

import importlib
from typing import Any

_transformers: Any = importlib.import_module("transformers")
_TrainerCallback: Any = _transformers.TrainerCallback


class OomtuneCallback(_TrainerCallback):
    """Has a Trainer run each batch in micro-batches that fit; batches, steps, schedules and logs stay those of its arguments.

    `micro_batch`: samples of a forward pass; default: that of the recommendation `name`, else what the first training call finds
    to fit (see `oomtune.auto_micro_batch`, which this calls). The configuration is written to the trackers that report_to opened.

    >>> Trainer(model=model, args=args, train_dataset=data, callbacks=[OomtuneCallback()])
    """

    def __init__(self, micro_batch: int | None = None, *, name: str | None = None) -> None:
        if micro_batch is None and name is not None:
            from ..recommendations import recommended

            micro_batch = recommended(name).micro_batch
        self.micro_batch = micro_batch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        from ..micro_batches import auto_micro_batch

        auto_micro_batch(kwargs["model"], self.micro_batch)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After the first step it is known what fits, and the trackers' runs are open."""
        if state.global_step != 1 or not state.is_world_process_zero:
            return
        from ..micro_batches import micro_batch_of
        from ..tracking import log_config

        own: int = args.per_device_train_batch_size
        micro = micro_batch_of(kwargs["model"])
        micro = own if micro is None else min(own, micro)
        log_config(
            {
                "micro_batch": micro,
                "accumulation": -(-own // micro) * args.gradient_accumulation_steps,
                "effective_batch": own * args.gradient_accumulation_steps * args.world_size,
            }
        )
