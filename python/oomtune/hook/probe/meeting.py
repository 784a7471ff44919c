"""Where a loss is made outside of the model, labels with the script's own rows meet outputs with those of the probe: they are
brought to the same rows there, whatever function they meet in."""

# What is looked into is the script's own, and may be anything.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false

from __future__ import annotations

import contextlib

from ..report.exceptions import is_oom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Call, Tensor, Torch
    from .resized import Resized


#: Functions in which tensors of other rows meet without an error, and give less than they would.
_SILENT = ("gather", "take_along_dim", "scatter", "scatter_add", "cat", "concat", "concatenate", "hstack", "vstack")
_GET = "__getitem__"
_SHAPING = ("view", "reshape", "unflatten", "expand")


class Meeting:
    """On from the first resized batch; `resized` holds what the script's own rows are, and which are wanted."""

    def __init__(self, torch: Torch, resized: Resized) -> None:
        self._torch = torch
        self._resized = resized
        self._mode: Any = None
        self._away = False

    def open(self) -> None:
        if self._mode is None:
            self._mode = _mode(self._torch, self._call)
            self._mode.__enter__()
            self._index(True)
            # They compare shapes by themselves before they call a function.
            self._torch.distributions.Distribution.set_default_validate_args(False)

    def close(self) -> None:
        if self._mode is not None and self._outermost():
            self._mode.__exit__(None, None, None)
            self._mode = None
            self._index(False)

    def _index(self, ours: bool) -> None:
        """torch before 2.0 does not tell a mode of an index."""
        kind = self._torch.Tensor
        if int(self._torch.__version__.split(".")[0]) > 1:
            return
        if not ours:
            del kind.__getitem__
            return
        original = kind.__getitem__

        def __getitem__(tensor: Any, index: Any) -> Any:
            return original(tensor, index) if self._away else self._call(original, (tensor, index), {})

        kind.__getitem__ = __getitem__

    @contextlib.contextmanager
    def apart(self) -> Generator[None, None, None]:
        """In a call of a model all tensors have the probe's rows already."""
        if self._mode is None or not self._outermost():
            yield
            return
        self._mode.__exit__(None, None, None)
        self._away = True
        try:
            yield
        finally:
            self._away = False
            self._mode.__enter__()

    def _outermost(self) -> bool:
        stack: list[Any] = self._torch.overrides._get_current_function_mode_stack()
        return bool(stack) and stack[-1] is self._mode

    # -- a call of one of torch's functions

    def _call(self, function: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._resized.differs:
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        args, kwargs = self._brought_first(name, args, kwargs)
        try:
            return function(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError) as error:
            if is_oom(error):
                raise
            # Only where they do not go together as they are: a row of weights may be as long as a batch.
            args, kwargs = self._brought(name, args, kwargs, flat=True)
        return function(*args, **kwargs)

    def _brought_first(self, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments as they can be where no error would tell that they do not go together."""
        if name in _SHAPING:
            return (self._shaped(args) if len(args[0]) == self._resized.wanted else args), kwargs
        silent = (
            name in _SILENT or name == _GET or "loss" in name
        )  # which only warns where it spreads one over the other
        if silent or 1 in (self._resized.own, self._resized.wanted):
            return self._brought(name, args, kwargs, flat=name == _GET)
        return args, kwargs

    def _brought(self, name: str, args: Any, kwargs: Any, flat: bool) -> tuple[Any, Any]:
        """The arguments, all with the probe's rows. `flat`: those of fewer dimensions, too, whose first one is no sample's where
        they are spread over the others."""
        if name in _SHAPING:
            return self._shaped(args), kwargs
        found: list[Any] = []
        self._each((args, kwargs), lambda tensor: (found.append(tensor), tensor)[1])
        views = None if name.startswith("__set") else self._views(found)
        if views is None:
            return args, kwargs
        own, wanted = self._resized.own * views, self._resized.wanted * views
        deep = max(tensor.dim() for tensor in found if tensor.shape[0] == wanted)

        def visit(tensor: Tensor) -> Tensor:
            if tensor.shape[0] != own or not _loose(tensor) or not (flat or tensor.dim() == deep):
                return tensor
            return self._resized.tensor(tensor, 0, wanted)

        return self._each((args, kwargs), visit)

    def _views(self, tensors: list[Tensor]) -> int | None:
        """Rows for each sample (its tokens, put into one dimension with the samples) where tensors of both kinds meet; None:
        they do not."""
        own, wanted = self._resized.own, self._resized.wanted
        for tensor in tensors:
            views, rest = divmod(int(tensor.shape[0]), wanted)
            if not rest and any(other.shape[0] == own * views and _loose(other) for other in tensors):
                return views
        return None

    def _each(self, tree: Any, visit: Call) -> Any:
        if isinstance(tree, self._torch.Tensor):
            return visit(tree) if tree.dim() else tree
        if type(tree) in (tuple, list):
            return type(tree)(self._each(value, visit) for value in tree)
        if type(tree) is dict:
            return {name: self._each(value, visit) for name, value in tree.items()}
        return tree

    def _shaped(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`x.view(batch_size, -1)` of a tensor with the probe's rows."""
        given = len(args) == 2 and isinstance(args[1], (tuple, list))
        sizes = args[1] if given else args[1:]
        if not sizes or type(sizes[0]) is not int or sizes[0] != self._resized.own:
            return args
        made = (self._resized.wanted, *sizes[1:])
        return (args[0], made) if given else (args[0], *made)


def _loose(tensor: Tensor) -> bool:
    """No weight of a model's."""
    return not (tensor.requires_grad and tensor.is_leaf)


def _mode(torch: Torch, call: Call) -> Any:
    """torch's own way to stand in each of its functions."""

    class Mode(torch.overrides.TorchFunctionMode):  # pyright: ignore[reportUntypedBaseClass]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(func, args, kwargs or {})

    return Mode()
