"""Makes the script a dry run for its results: those of earlier runs stay as they are, and what it saves itself it can read back.

To the script its writes seem to succeed: what it does with the files next (rename, copy, rotate, ask their size, load them)
must not fail either. What it wrote is kept in files without a name, which end with the process.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys

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
#: Of a file that takes the place of an earlier one when it is whole.
UNFINISHED = (".tmp", ".temp", ".part", ".new")
#: A file without a name, opened again.
OPEN_FILES = "/proc/self/fd/"
#: What the script saves is kept while this part of the disk is free: others write there, too.
FREE = 0.1


class ArtifactGuard:
    """Keeps writes of artifacts (checkpoints, weights, arrays) apart while `controlled()` is true."""

    def __init__(self, controlled: Callable[[], bool]) -> None:
        self.controlled = controlled
        #: What was written in the place of each file; None: it could not be kept.
        self._written: dict[str, Any] = {}
        self._stat = os.stat
        self._open = builtins.open

    def install(self) -> None:
        os.remove = os.unlink = self._guarded(os.remove, self._keeps)
        for name in ("replace", "rename", "link", "symlink"):
            setattr(os, name, self._guarded(getattr(os, name), self._moves))
        builtins.open = io.open = self._opened(builtins.open)
        # Before Python 3.11 pathlib keeps functions of its own; before 3.10 its `open` is the one for descriptors.
        accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)
        for name in {"unlink", "replace", "rename", "link", "symlink", "open"}.intersection(vars(accessor or object)):
            if name != "open" or getattr(accessor, name) is not os.open:
                setattr(accessor, name, staticmethod(getattr(io if name == "open" else os, name)))

    def install_shutil(self, shutil: Any) -> None:
        for name in ("copyfile", "copy", "copy2", "move"):
            setattr(shutil, name, self._guarded(getattr(shutil, name), self._moves))
        shutil.rmtree = self._guarded(shutil.rmtree, self._prunes)

    def save(self, path: Any, write: Callable[[Any], Any]) -> None:
        """`write(path)` saves into the path that it is given: here into one apart from the script's, if there is room for it."""
        self._note(path, None)
        try:
            if _has_room(os.path.dirname(_absolute(path) or "")):
                write(self._apart(path))
        except Exception as error:  # a full disk raises anything
            from ..report.exceptions import is_oom

            if is_oom(error):
                raise
            self._note(path, None)

    def readable(self, path: Any) -> Any:
        """The path under which what the script has saved there can be read; its own where it has not, or is not `controlled()`."""
        kept = self._written.get(_absolute(path) or "") if self.controlled() else None
        return path if kept is None else _named(kept)

    def _apart(self, path: Any, new: bool = True) -> Any:
        """The path of a file without a name beside the script's, where its own would have room; `new` False: what it has written there, if any."""
        kept = None if new else self._written.get(_absolute(path) or "")
        if kept is None:
            kept = _file_without_name(os.path.dirname(_absolute(path) or ""))
            self._note(path, kept)
        return _named(kept)

    def _note(self, path: Any, kept: Any) -> None:
        path = _absolute(path)
        if path is not None:
            self._written[path] = kept
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
        self._written.pop(_absolute(path) or "", None)
        return held or _is_artifact(path)

    def _moves(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> bool:
        if not self._holds(source):
            return False
        self._note(target, self._written[_absolute(source) or ""])
        return True

    def _prunes(self, path: Any, *args: Any, **kwargs: Any) -> bool:
        return any(_is_artifact(name) for _, _, names in os.walk(path) for name in names)

    def _stats(self, original: Call) -> Call:
        @functools.wraps(original)
        def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            kept = self._written.get(_absolute(path) or "") if self.controlled() else None
            if kept is not None:
                return original(kept.fileno())
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
            if isinstance(mode, str) and self.controlled():
                writes = mode[:1] in "wxa"
                if writes and _is_artifact(file):
                    file, mode = self._apart(file, new=mode[:1] != "a"), mode.replace("x", "w")
                    kwargs.pop("opener", None)  # older pathlib's opens its own path, whatever it is given
                elif not writes and self.readable(file) is not file:
                    file = self.readable(file)
                    kwargs.pop("opener", None)
            return original(file, mode, *args, **kwargs)

        return open


def _file_without_name(folder: str) -> Any:
    import tempfile

    return tempfile.TemporaryFile("w+b", dir=folder if os.access(folder, os.W_OK) else None)


def _has_room(folder: str) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail >= FREE * disk.f_blocks


def _named(kept: Any) -> str:
    """Another opening of a file without a name."""
    return OPEN_FILES + str(kept.fileno())


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
    if path is None:
        return False
    stem, ending = os.path.splitext(path)
    return (stem if ending in UNFINISHED else path).endswith(ENDINGS)


def _path_of(target: Any) -> Any:
    """The path that an open file has, or a target that is no file; an open file that the guard has given has none."""
    name = getattr(target, "name", None) if hasattr(target, "write") else target
    return None if isinstance(name, str) and name.startswith(OPEN_FILES) else name


def guard_saves(torch: Torch, artifact_guard: ArtifactGuard) -> None:
    """torch.save to a path goes apart while the worker controls the process, and torch.load reads it; into memory it works as usual."""
    original, original_load = torch.save, torch.load

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        path = _path_of(f)
        if artifact_guard.controlled() and _absolute(path) is not None:
            return artifact_guard.save(path, lambda apart: original(obj, apart, *args, **kwargs))
        return original(obj, f, *args, **kwargs)

    @functools.wraps(original_load)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        return original_load(artifact_guard.readable(f), *args, **kwargs)

    torch.save = torch.serialization.save = save
    torch.load = torch.serialization.load = load


def guard_safetensors(hook: Hook, module: ModuleType) -> None:
    guard = hook.artifact_guard
    if guard is None:
        return
    for name in ("save_file", "save_model"):
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _saved_apart(original, guard))
    for place in (module, sys.modules.get("safetensors")):
        original = getattr(place, "safe_open", None)
        if original is not None:
            setattr(place, "safe_open", _read_apart(original, guard))


def _saved_apart(original: Call, guard: ArtifactGuard) -> Call:
    @functools.wraps(original)
    def save(obj: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        if guard.controlled():
            return guard.save(filename, lambda path: original(obj, path, *args, **kwargs))
        return original(obj, filename, *args, **kwargs)

    return save


def _read_apart(original: Call, guard: ArtifactGuard) -> Call:
    def safe_open(filename: Any, *args: Any, **kwargs: Any) -> Any:
        return original(guard.readable(filename), *args, **kwargs)

    return safe_open
