"""Makes the script a dry run: earlier checkpoints and results stay as they are, experiment trackers get nothing.

To the script its writes seem to succeed: what it does with the files next (rename, copy, rotate, ask their size) must not fail
either.
"""

from __future__ import annotations

import builtins
import functools
import io
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..hook import Hook
    from ..types import Call, Torch


#: Endings of files that are protected. Logs and tables are not: the script opened them before its loop.
ENDINGS = (
    ".pt", ".pth", ".tar", ".ckpt", ".bin", ".safetensors", ".onnx", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".h5", ".hdf5",
)  # fmt: skip


class ArtifactGuard:
    """Suppresses writes of artifacts (checkpoints, weights, arrays) while `controlled()` is true."""

    def __init__(self, controlled: Callable[[], bool]) -> None:
        self.controlled = controlled
        self._written: set[str] = set()
        self._stat = os.stat

    def install(self) -> None:
        os.remove = os.unlink = self._guarded(os.remove, self._keeps)
        for name in ("replace", "rename", "link", "symlink"):
            setattr(os, name, self._guarded(getattr(os, name), self._moves))
        builtins.open = io.open = self._opened(builtins.open)

    def install_shutil(self, shutil: Any) -> None:
        for name in ("copyfile", "copy", "copy2", "move"):
            setattr(shutil, name, self._guarded(getattr(shutil, name), self._moves))
        shutil.rmtree = self._guarded(shutil.rmtree, self._prunes)

    def wrote(self, path: Any) -> None:
        """Notes a file whose write was suppressed."""
        path = _absolute(path)
        if path is not None:
            self._written.add(path)
            if os.stat is self._stat:
                os.stat = self._stats(self._stat)

    def _holds(self, path: Any) -> bool:
        return _absolute(path) in self._written

    def _guarded(self, original: Call, pretends: Callable[..., bool]) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.controlled() and pretends(*args, **kwargs):
                return None
            return original(*args, **kwargs)

        return call

    def _keeps(self, path: Any, **kwargs: Any) -> bool:
        """Rotation of checkpoints: the oldest may be of an earlier run."""
        held = self._holds(path)
        self._written.discard(_absolute(path))
        return held or _is_artifact(path)

    def _moves(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> bool:
        if not self._holds(source):
            return False
        self.wrote(target)
        return True

    def _prunes(self, path: Any, *args: Any, **kwargs: Any) -> bool:
        return any(_is_artifact(name) for _, _, names in os.walk(path) for name in names)

    def _stats(self, original: Call) -> Call:
        @functools.wraps(original)
        def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(path, *args, **kwargs)
            except FileNotFoundError:
                if self.controlled() and self._holds(path):
                    return original(__file__)  # of any existing file
                raise

        return stat

    def _opened(self, original: Call) -> Call:
        @functools.wraps(original)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and mode[:1] in "wxa" and self.controlled() and _is_artifact(file):
                import tempfile

                self.wrote(file)
                return tempfile.TemporaryFile(mode.replace("x", "w"), *args, **kwargs)
            return original(file, mode, *args, **kwargs)

        return open


def keep_from_shutil(hook: Hook, module: ModuleType) -> None:
    if hook.artifact_guard is not None:
        hook.artifact_guard.install_shutil(module)


def _absolute(path: Any) -> str | None:
    """None if it names no file."""
    if hasattr(path, "__fspath__"):
        path = path.__fspath__()
    return os.path.abspath(path) if isinstance(path, str) else None


def _is_artifact(path: Any) -> bool:
    path = _absolute(path)
    return path is not None and path.endswith(ENDINGS)


def quiet_saves(torch: Torch, artifact_guard: ArtifactGuard) -> None:
    """torch.save to a path does nothing while the worker controls the process; into memory it works as usual."""
    original = torch.save

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if artifact_guard.controlled() and not _in_memory(f):
            return artifact_guard.wrote(f)
        return original(obj, f, *args, **kwargs)

    torch.save = save
    torch.serialization.save = save


def quiet_safetensors(hook: Hook, module: ModuleType) -> None:
    for name in ("save_file", "save_model"):
        original = getattr(module, name, None)
        if original is not None and hook.artifact_guard is not None:
            setattr(module, name, _quiet(original, hook.artifact_guard))


def _quiet(original: Call, artifact_guard: ArtifactGuard) -> Call:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if artifact_guard.controlled():
            return artifact_guard.wrote(args[1] if len(args) > 1 else kwargs.get("filename"))
        return original(*args, **kwargs)

    return save


def _in_memory(target: Any) -> bool:
    return hasattr(target, "write") and not hasattr(target, "name")


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
