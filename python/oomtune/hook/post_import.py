"""Runs a callback after a named module was imported, without importing it itself."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable


class PostImportFinder:
    """A meta-path finder that lets the other finders find the module, and wraps its execution."""

    def __init__(self, callbacks: dict[str, Callable[[Any], None]]) -> None:
        self._callbacks = dict(callbacks)
        self._busy: set[str] = set()

    def install(self) -> None:
        # With `python -m`, or under a launcher that forked, a module may have been imported already.
        for name in list(self._callbacks):
            if name in sys.modules:
                self._fire(name, sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._callbacks or name in self._busy:
            return None
        import importlib.util  # not at the start: most processes import nothing of interest

        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
        finally:
            self._busy.discard(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return None
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._fire(name, module)

        try:
            # On the instance, so that the loader keeps the type that inspect and pkgutil check.
            loader.exec_module = exec_module
        except AttributeError:
            return None
        return spec

    def _fire(self, name: str, module: ModuleType) -> None:
        callback = self._callbacks.pop(name, None)
        if callback is None:
            return
        # What the hook imports sets off no collection: one would free the garbage of the module's own import (a MiB of torch's),
        # which a run without the hook trains beside.
        collects = gc.isenabled()
        gc.disable()
        try:
            callback(module)
        finally:
            if collects:
                gc.enable()
