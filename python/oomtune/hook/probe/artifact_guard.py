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
    """Keeps writes of artifacts (checkpoints, weights, arrays) apart while `controlled()` is true. `whole`: of all files but
    temporary and cached ones, since the script goes on to its end; folders that it makes are removed."""

    def __init__(self, controlled: Callable[[], bool], whole: bool = False) -> None:
        self.controlled = controlled
        self._whole = whole
        self._elsewhere = _not_results() if whole else ()
        #: A file without a name is being made.
        self._making = False
        #: Folders that were made meanwhile, in order.
        self._folders: list[str] = []
        #: Saves of artifacts run in it.
        self.while_saving: Callable[[Callable[[], Any]], Any] | None = None
        #: What was written in the place of each file; None: it could not be kept.
        self._written: dict[str, Any] = {}
        self._stat = os.stat
        self._open = builtins.open

    def install(self) -> None:
        os.remove = os.unlink = self._guarded(os.remove, self._keeps)
        for name in ("chmod", "utime"):
            setattr(os, name, self._guarded(getattr(os, name), self._is_written))
        for name in ("replace", "rename", "link", "symlink"):
            setattr(os, name, self._guarded(getattr(os, name), self._moves))
        builtins.open = io.open = self._opened(builtins.open)
        if self._whole:
            os.mkdir = self._noted(os.mkdir)
        # Before Python 3.11 pathlib keeps functions of its own; before 3.10 its `open` is the one for descriptors.
        accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)
        for name in {"unlink", "replace", "rename", "link", "symlink", "open"}.intersection(vars(accessor or object)):
            if name != "open" or getattr(accessor, name) is not os.open:
                setattr(accessor, name, staticmethod(getattr(io if name == "open" else os, name)))

    def install_shutil(self, shutil: Any) -> None:
        for name in ("copyfile", "copy", "copy2", "move"):
            setattr(shutil, name, self._guarded(getattr(shutil, name), self._moves))
        shutil.rmtree = self._guarded(shutil.rmtree, self._prunes)

    def save(self, path: Any, write: Callable[[Any], Any], beside: bool = False) -> None:
        """`write(path)` saves into the path that it is given: here into one apart from the script's, if there is room for it.
        `beside`: it makes a file beside that path, which then takes its place."""
        if self.while_saving is None:
            self._save(path, write, beside)
        else:
            self.while_saving(lambda: self._save(path, write, beside))

    def _save(self, path: Any, write: Callable[[Any], Any], beside: bool) -> None:
        self._note(path, None)
        try:
            if _has_room(os.path.dirname(_absolute(path) or "")):
                if beside:
                    self._replaced(path, write)
                else:
                    write(self._apart(path))
        except Exception as error:  # a full disk raises anything
            from ..report.exceptions import is_oom

            if is_oom(error):
                raise
            self._note(path, None)

    def _replaced(self, path: Any, write: Callable[[Any], Any]) -> None:
        import shutil
        import tempfile

        folder = os.path.dirname(_absolute(path) or "")
        self._making = True
        try:
            made = tempfile.mkdtemp(dir=folder if os.access(folder, os.W_OK) else None)
            try:
                file = os.path.join(made, "saved")
                write(file)
                self._note(path, self._open(file, "rb"))
            finally:
                shutil.rmtree(made, ignore_errors=True)
        finally:
            self._making = False

    def readable(self, path: Any) -> Any:
        """The path under which what the script has saved there can be read; its own where it has not, or is not `controlled()`."""
        kept = self._written.get(_absolute(path) or "") if self.controlled() else None
        return path if kept is None else _named(kept)

    def _apart(self, path: Any, new: bool = True) -> Any:
        """The path of a file without a name beside the script's, where its own would have room; `new` False: what it has written there, if any."""
        kept = None if new else self._written.get(_absolute(path) or "")
        if kept is None:
            self._making = True
            try:
                kept = _file_without_name(os.path.dirname(_absolute(path) or ""))
            finally:
                self._making = False
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

    def _is_written(self, path: Any, *args: Any, **kwargs: Any) -> bool:
        return self._holds(path)

    def _guarded(self, original: Call, pretends: Callable[..., bool]) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.controlled() and not self._making and pretends(*args, **kwargs):
                return None
            return original(*args, **kwargs)

        return call

    def _keeps(self, path: Any, **kwargs: Any) -> bool:
        """Rotation of checkpoints: the oldest may be of an earlier run."""
        held = self._holds(path)
        self._written.pop(_absolute(path) or "", None)
        return held or self._protects(path)

    def _moves(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> bool:
        if not self._holds(source):
            if not self._protects(target):
                return False
            # A temporary file takes the place of one of the user's: it is kept as if it had been written there.
            self._take(source, target)
            return True
        self._note(target, self._written[_absolute(source) or ""])
        return True

    def _prunes(self, path: Any, *args: Any, **kwargs: Any) -> bool:
        if self._whole and self._protects(path):
            return True
        return any(_is_artifact(name) for _, _, names in os.walk(path) for name in names)

    def _protects(self, path: Any) -> bool:
        """Whether what is written there is kept apart."""
        if _is_artifact(path):
            return True
        path = _absolute(path)
        return self._whole and path is not None and not path.startswith(self._elsewhere)

    def _take(self, source: Any, target: Any) -> None:
        """Notes what lies in `source` as written to `target`; of a folder, or what cannot be read, only that it was."""
        try:
            self._note(target, self._open(source, "rb"))
        except OSError:
            self._note(target, None)

    def _noted(self, original: Call) -> Call:
        @functools.wraps(original)
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> Any:
            original(path, *args, **kwargs)
            made = _absolute(path)
            if made is not None and self.controlled() and not self._making:
                self._folders.append(made)

        return mkdir

    def remove_folders(self) -> None:
        """At the end: nothing lies in those that the script has made, unless something else put it there."""
        while self._folders:
            try:
                os.rmdir(self._folders.pop())
            except OSError:
                pass

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
            if isinstance(mode, str) and self.controlled() and not self._making:
                writes = mode[:1] in "wxa"
                if writes and self._protects(file):
                    file, mode = self._apart(file, new=mode[:1] != "a"), mode.replace("x", "w")
                    kwargs.pop("opener", None)  # older pathlib's opens its own path, whatever it is given
                elif not writes and self.readable(file) is not file:
                    file = self.readable(file)
                    kwargs.pop("opener", None)
            return original(file, mode, *args, **kwargs)

        return open


def _not_results() -> tuple[str, ...]:
    """Where programs keep what is no result of theirs: temporary files, caches, devices; the working folder is none of them."""
    import tempfile

    home = os.path.expanduser("~")
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME")
    given = [os.environ[name] for name in names if os.environ.get(name)]
    folders = [tempfile.gettempdir(), *given, *(os.path.join(home, name) for name in (".cache", ".triton", ".nv"))]
    here = os.getcwd() + os.sep
    apart = (os.path.abspath(folder) + os.sep for folder in folders)
    return ("/dev/", "/proc/", "/sys/", *(folder for folder in apart if not here.startswith(folder)))


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
            # Newer ones write into another file first.
            return guard.save(filename, lambda path: original(obj, path, *args, **kwargs), beside=True)
        return original(obj, filename, *args, **kwargs)

    return save


def _read_apart(original: Call, guard: ArtifactGuard) -> Call:
    def safe_open(filename: Any, *args: Any, **kwargs: Any) -> Any:
        return original(guard.readable(filename), *args, **kwargs)

    return safe_open
