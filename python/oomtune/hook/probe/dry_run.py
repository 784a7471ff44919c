"""Makes the script a dry run for experiment trackers: they get nothing."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ..hook import Hook


QUIET = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "SWANLAB_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
    "DVCLIVE_TEST": "true",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def quiet_environment() -> None:
    os.environ.update(QUIET)


class _Nothing:
    """Accepts every call and attribute, and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *args: Any) -> None:
        return None


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


class _SummaryWriter(_Nothing):
    """In place of tensorboard's and tensorboardX's."""

    log_dir = ""

    def get_logdir(self) -> str:
        return ""


def quiet_tensorboard(hook: Hook, module: ModuleType) -> None:
    setattr(module, "SummaryWriter", _SummaryWriter)


def quiet_mlflow(hook: Hook, module: ModuleType) -> None:
    """Drops runs, metrics and artifacts; functions that return a run return an object that accepts everything."""
    for name in dir(module):
        if name.startswith(("log_", "set_tag", "set_experiment", "autolog", "create_experiment", "end_run")):
            setattr(module, name, _Nothing())
    setattr(module, "start_run", _Nothing)
    setattr(module, "active_run", _nothing)
