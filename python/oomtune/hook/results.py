"""Keeps the files of a user's earlier results as they are while a process is driven, and lets the script believe that it
wrote its own: what it does with them next (rename, copy, rotate, ask their size) must not fail either."""

import builtins
import functools
import io
import os

#: Endings of files with results. Logs and tables are the script's own business: it opened them before its loop.
ENDINGS = (
    ".pt", ".pth", ".tar", ".ckpt", ".bin", ".safetensors", ".onnx", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".h5", ".hdf5",
)  # fmt: skip


class Results:
    """`driven()`: whether the process is driven now."""

    def __init__(self, driven):
        self.driven = driven
        self._written = set()
        self._stat = os.stat

    def install(self):
        os.remove = os.unlink = self._guarded(os.remove, self._keeps)
        for name in ("replace", "rename", "link", "symlink"):
            setattr(os, name, self._guarded(getattr(os, name), self._moves))
        builtins.open = io.open = self._opened(builtins.open)

    def install_shutil(self, shutil):
        for name in ("copyfile", "copy", "copy2", "move"):
            setattr(shutil, name, self._guarded(getattr(shutil, name), self._moves))
        shutil.rmtree = self._guarded(shutil.rmtree, self._prunes)

    def wrote(self, path):
        """The script believes that it wrote this file."""
        path = _absolute(path)
        if path is not None:
            self._written.add(path)
            if os.stat is self._stat:
                os.stat = self._stats(self._stat)

    # -- the parts

    def _holds(self, path):
        return _absolute(path) in self._written

    def _guarded(self, original, pretends):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if self.driven() and pretends(*args, **kwargs):
                return None
            return original(*args, **kwargs)

        return call

    def _keeps(self, path, **kwargs):
        """Rotation: the oldest checkpoint may be one of an earlier run."""
        held = self._holds(path)
        self._written.discard(_absolute(path))
        return held or _is_result(path)

    def _moves(self, source, target, *args, **kwargs):
        if not self._holds(source):
            return False
        self.wrote(target)
        return True

    def _prunes(self, path, *args, **kwargs):
        return any(_is_result(name) for _, _, names in os.walk(path) for name in names)

    def _stats(self, original):
        @functools.wraps(original)
        def stat(path, *args, **kwargs):
            try:
                return original(path, *args, **kwargs)
            except FileNotFoundError:
                if self.driven() and self._holds(path):
                    return original(__file__)  # some file
                raise

        return stat

    def _opened(self, original):
        @functools.wraps(original)
        def open(file, mode="r", *args, **kwargs):
            if isinstance(mode, str) and mode[:1] in "wxa" and self.driven() and _is_result(file):
                import tempfile

                self.wrote(file)
                return tempfile.TemporaryFile(mode.replace("x", "w"), *args, **kwargs)
            return original(file, mode, *args, **kwargs)

        return open


def keep_from_shutil(hook, module):
    hook.results.install_shutil(module)


def _absolute(path):
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    return os.path.abspath(path) if isinstance(path, str) else None


def _is_result(path):
    path = _absolute(path)
    return path is not None and path.endswith(ENDINGS)
