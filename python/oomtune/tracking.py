"""Writes the configuration of this run to the trackers that the script has a run open in."""

from __future__ import annotations

import gc
import sys
from dataclasses import asdict, is_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Union

    from .knobs import Config
    from .recommendations import Recommendation

    Chosen = Union[Config, Recommendation, Mapping[str, Any]]

#: What is written, if it is known.
FIELDS = (
    "micro_batch",
    "accumulation",
    "effective_batch",
    "amp",
    "checkpointing",
    "max_micro_batch",
    "device",
    "budget_bytes",
    "key",
    "job_id",
)


def log_config(config: Chosen | None = None, writer: Any = None) -> list[str]:
    """Writes a configuration to each tracker with an open run; returns their names: `wandb`, `mlflow`, `tensorboard`.

    `config`: default what oomtune set for this run (`oomtune.config()`). `writer`: a TensorBoard SummaryWriter; without it, all
    that are open. Under Weights & Biases it is `oomtune` in the run's config, under MLflow parameters `oomtune.micro_batch` and so
    on (tags, where the run has other values already), in TensorBoard the text `oomtune`. No tracker is imported or started.
    """
    values = _values(config)
    to = {
        "wandb": _to_wandb(values),
        "mlflow": _to_mlflow(values),
        "tensorboard": _to_tensorboard(values, [writer] if writer is not None else _open_writers()),
    }
    return [name for name, written in to.items() if written]


def _values(config: Chosen | None) -> dict[str, Any]:
    if config is None:
        from .knobs import config as chosen

        config = chosen()
    known: Any = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    return {name: known[name] for name in FIELDS if known.get(name) is not None}


def _to_wandb(values: dict[str, Any]) -> bool:
    run: Any = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        return False
    run.config.update({"oomtune": values}, allow_val_change=True)
    return True


def _to_mlflow(values: dict[str, Any]) -> bool:
    mlflow: Any = sys.modules.get("mlflow")
    run: Any = mlflow.active_run() if hasattr(mlflow, "active_run") else None
    if run is None:
        return False
    known: Any = mlflow.get_run(run.info.run_id).data.params
    named = {"oomtune." + name: value for name, value in values.items()}
    mlflow.log_params({name: value for name, value in named.items() if name not in known})
    # A parameter cannot be written twice.
    changed = {name: value for name, value in named.items() if known.get(name, str(value)) != str(value)}
    if changed:
        mlflow.set_tags(changed)
    return True


def _to_tensorboard(values: dict[str, Any], writers: list[Any]) -> bool:
    rows = ["| %s | %s |" % pair for pair in values.items()]
    for writer in writers:
        writer.add_text("oomtune", "\n".join(["| | |", "|---|---|", *rows]), 0)
        writer.flush()
    return bool(writers)


def _open_writers() -> list[Any]:
    kinds = tuple(
        sys.modules[name].SummaryWriter
        for name in ("torch.utils.tensorboard", "tensorboardX")
        if hasattr(sys.modules.get(name), "SummaryWriter")
    )
    if not kinds:
        return []
    # A closed one has let go of its files.
    return [thing for thing in gc.get_objects() if type(thing) in kinds and getattr(thing, "all_writers", None)]
