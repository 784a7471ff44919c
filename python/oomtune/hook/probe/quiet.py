"""Keeps a process that is thrown away quiet: the user's earlier results stay as they are, experiment trackers hear nothing.

The script is let believe that it wrote its files: what it does with them next (rename, copy, rotate, ask their size) must not
fail either.
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


#: Endings of files with results. Logs and tables are the script's own business: it opened them before its loop.
ENDINGS = (
    ".pt", ".pth", ".tar", ".ckpt", ".bin", ".safetensors", ".onnx", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".h5", ".hdf5",
)  # fmt: skip


class ResultFiles:
    """`driven()`: whether the process is driven now."""

    def __init__(self, driven: Callable[[], bool]) -> None:
        self.driven = driven
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
        """The script believes that it wrote this file."""
        path = _absolute(path)
        if path is not None:
            self._written.add(path)
            if os.stat is self._stat:
                os.stat = self._stats(self._stat)

    # -- the parts

    def _holds(self, path: Any) -> bool:
        return _absolute(path) in self._written

    def _guarded(self, original: Call, pretends: Callable[..., bool]) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.driven() and pretends(*args, **kwargs):
                return None
            return original(*args, **kwargs)

        return call

    def _keeps(self, path: Any, **kwargs: Any) -> bool:
        """Rotation: the oldest checkpoint may be one of an earlier run."""
        held = self._holds(path)
        self._written.discard(_absolute(path))
        return held or _is_result(path)

    def _moves(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> bool:
        if not self._holds(source):
            return False
        self.wrote(target)
        return True

    def _prunes(self, path: Any, *args: Any, **kwargs: Any) -> bool:
        return any(_is_result(name) for _, _, names in os.walk(path) for name in names)

    def _stats(self, original: Call) -> Call:
        @functools.wraps(original)
        def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(path, *args, **kwargs)
            except FileNotFoundError:
                if self.driven() and self._holds(path):
                    return original(__file__)  # some file
                raise

        return stat

    def _opened(self, original: Call) -> Call:
        @functools.wraps(original)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and mode[:1] in "wxa" and self.driven() and _is_result(file):
                import tempfile

                self.wrote(file)
                return tempfile.TemporaryFile(mode.replace("x", "w"), *args, **kwargs)
            return original(file, mode, *args, **kwargs)

        return open


def keep_from_shutil(hook: Hook, module: ModuleType) -> None:
    if hook.result_files is not None:
        hook.result_files.install_shutil(module)


def _absolute(path: Any) -> str | None:
    """None: it names no file."""
    if hasattr(path, "__fspath__"):
        path = path.__fspath__()
    return os.path.abspath(path) if isinstance(path, str) else None


def _is_result(path: Any) -> bool:
    path = _absolute(path)
    return path is not None and path.endswith(ENDINGS)


def quiet_saves(torch: Torch, result_files: ResultFiles) -> None:
    """torch.save to a path does nothing while the process is driven; into memory it works as ever."""
    original = torch.save

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if result_files.driven() and not _in_memory(f):
            return result_files.wrote(f)
        return original(obj, f, *args, **kwargs)

    torch.save = save
    torch.serialization.save = save


def quiet_safetensors(hook: Hook, module: ModuleType) -> None:
    for name in ("save_file", "save_model"):
        original = getattr(module, name, None)
        if original is not None and hook.result_files is not None:
            setattr(module, name, _quiet(original, hook.result_files))


def _quiet(original: Call, result_files: ResultFiles) -> Call:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if result_files.driven():
            return result_files.wrote(args[1] if len(args) > 1 else kwargs.get("filename"))
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
    """Takes every call and attribute, and does nothing."""

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
    """Runs, metrics and artifacts go nowhere; what returns a run returns an object that takes anything."""
    for name in dir(module):
        if name.startswith(("log_", "set_tag", "set_experiment", "autolog", "create_experiment", "end_run")):
            setattr(module, name, _Nothing())
    setattr(module, "start_run", _Nothing)
    setattr(module, "active_run", _nothing)
