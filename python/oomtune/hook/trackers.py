"""Keeps experiment trackers quiet in a process that is thrown away after its measurements."""

import os

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


def quiet_environment():
    os.environ.update(QUIET)


class _Nothing:
    """Takes every call and attribute, and does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *args, **kwargs):
        return None

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


class _SummaryWriter(_Nothing):
    """In place of tensorboard's and tensorboardX's."""

    log_dir = ""

    def get_logdir(self):
        return ""


def quiet_tensorboard(hook, module):
    module.SummaryWriter = _SummaryWriter


def quiet_mlflow(hook, module):
    """Runs, metrics and artifacts go nowhere; what returns a run returns an object that takes anything."""
    for name in dir(module):
        if name.startswith(("log_", "set_tag", "set_experiment", "autolog", "create_experiment", "end_run")):
            setattr(module, name, _Nothing())
    module.start_run = lambda *args, **kwargs: _Nothing()
    module.active_run = lambda *args, **kwargs: None
