"""Wraps the forward of chosen modules, but not of their copies and pickles.

The patched forward of the class checks whether the instance is one of the chosen: a deep copy (an average of the weights,
say) is not, and a pickle contains nothing of ours.
"""

from __future__ import annotations

import functools
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Call, Module


class ForwardWrappers:
    def __init__(self) -> None:
        self._around: dict[int, list[Call]] = {}

    def wrap(self, module: Module, around: Call, innermost: bool = False) -> bool:
        """`around(call, *args, **kwargs)` runs in place of forward, which is `call`. The latest wrapper is the outermost, unless
        `innermost`. Returns False if the module cannot be wrapped."""
        key = id(module)
        if not self._patch(module):
            return False
        if key not in self._around:
            self._around[key] = []
            weakref.finalize(module, self._around.pop, key, None)
        self._around[key].insert(0 if innermost else len(self._around[key]), around)
        return True

    def _run(self, module: Module, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for around in self._around.get(id(module), ()):
            call = functools.partial(around, call)
        return call(*args, **kwargs)

    def _patch(self, module: Module) -> bool:
        own = module.__dict__.get("forward")
        if own is not None:
            # Another tool (accelerate) has set a forward on the instance, which never calls the class's.
            return self._patch_instance(module, own)
        kind = type(module)  # pyright: ignore[reportUnknownVariableType]
        original = getattr(kind, "forward", None)  # pyright: ignore[reportUnknownArgumentType]
        if getattr(original, "_oomtune", False) and "forward" in kind.__dict__:
            return True
        if not callable(original) or not hasattr(original, "__code__"):
            return False  # a scripted module
        outer = self

        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in outer._around or type(self).__dict__.get("forward") is not forward:
                return original(self, *args, **kwargs)
            return outer._run(self, functools.partial(original, self), args, kwargs)

        setattr(forward, "_oomtune", True)
        kind.forward = forward
        return True

    def _patch_instance(self, module: Module, own: Any) -> bool:
        if getattr(own, "_oomtune", False):
            return True
        reference, outer = weakref.ref(module), self

        @functools.wraps(own)
        def forward(*args: Any, **kwargs: Any) -> Any:
            target = reference()
            return own(*args, **kwargs) if target is None else outer._run(target, own, args, kwargs)

        setattr(forward, "_oomtune", True)
        object.__setattr__(module, "forward", forward)
        return True
