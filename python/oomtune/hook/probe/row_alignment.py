"""Aligns rows outside of the model: where labels with the script's own rows meet outputs with the probe's rows (in a loss,
say), resizes the labels, in whatever function of torch they meet."""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false

from __future__ import annotations

import contextlib

from ..report.exceptions import is_oom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generator

    from ..types import Call, Tensor, Torch
    from ..watch.optimizers import Optimizers
    from .batch_resizer import BatchResizer


#: Functions that accept tensors of different row counts without an error.
_SILENT = ("gather", "take_along_dim", "scatter", "scatter_add", "cat", "concat", "concatenate", "hstack", "vstack")
_GET = "__getitem__"
_SHAPING = ("view", "reshape", "unflatten", "expand")
#: Functions of lists of weights and gradients: their rows are no samples.
_OF_WEIGHTS = ("_foreach_", "_fused_", "_amp_foreach_")


class RowAlignment:
    """Active from the first resized batch on. `resizer` knows the script's own rows and the wanted ones."""

    def __init__(self, torch: Torch, resized: BatchResizer, optimizers: Optimizers) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._resizer = resized
        self._mode: Any = None
        self._away = False

    def open(self) -> None:
        if self._mode is None:
            self._mode = _mode(self._torch, self._call)
            self._mode.__enter__()
            self._index(True)
            # Distributions compare shapes themselves before they call a function.
            self._torch.distributions.Distribution.set_default_validate_args(False)

    def close(self) -> None:
        if self._mode is not None and self._outermost():
            self._mode.__exit__(None, None, None)
            self._mode = None
            self._index(False)

    def _index(self, ours: bool) -> None:
        """torch before 2.0 does not pass indexing to a mode: patches it."""
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
    def suspended(self) -> Generator[None, None, None]:
        """Inactive inside: in a call of a model all tensors have the probe's rows already."""
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

    # -- in each call of a function of torch

    def _call(self, function: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(function, "__name__", "")
        if not self._resizer.differs or self._optimizers.stepping or name.startswith(_OF_WEIGHTS):
            return function(*args, **kwargs)
        args, kwargs = self._aligned_first(name, args, kwargs)
        try:
            return function(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError) as error:
            if is_oom(error):
                raise
            # Resized only after an error: a row of weights may be as long as a batch.
            args, kwargs = self._aligned(name, args, kwargs, flat=True)
        return function(*args, **kwargs)

    def _aligned_first(self, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments, aligned before the call if no error would show that their rows differ."""
        if name in _SHAPING:
            return (self._shaped(args) if len(args[0]) == self._resizer.wanted else args), kwargs
        silent = name in _SILENT or name == _GET or "loss" in name  # losses only warn when they broadcast
        if silent or 1 in (self._resizer.own, self._resizer.wanted):
            return self._aligned(name, args, kwargs, flat=name == _GET)
        return args, kwargs

    def _aligned(self, name: str, args: Any, kwargs: Any, flat: bool) -> tuple[Any, Any]:
        """The arguments, all with the probe's rows. `flat`: also tensors of fewer dimensions than the outputs, which broadcasting
        would align by their last dimension."""
        if name in _SHAPING:
            return self._shaped(args), kwargs
        found: list[Any] = []
        self._each((args, kwargs), lambda tensor: (found.append(tensor), tensor)[1])
        views = None if name.startswith("__set") else self._views(found)
        if views is None:
            return args, kwargs
        own, wanted = self._resizer.own * views, self._resizer.wanted * views
        deep = max(tensor.dim() for tensor in found if tensor.shape[0] == wanted)

        def visit(tensor: Tensor) -> Tensor:
            if tensor.shape[0] != own or not _is_data(tensor) or not (flat or tensor.dim() == deep):
                return tensor
            return self._resizer.tensor(tensor, 0, wanted)

        return self._each((args, kwargs), visit)

    def _views(self, tensors: list[Tensor]) -> int | None:
        """Rows per sample (its tokens, say, flattened into the first dimension) if tensors with the script's rows meet tensors
        with the probe's; else None."""
        own, wanted = self._resizer.own, self._resizer.wanted
        # A batch may be stacked of thousands of samples: each is looked at once.
        lengths = {int(tensor.shape[0]) for tensor in tensors if _is_data(tensor)}
        for tensor in tensors:
            views, rest = divmod(int(tensor.shape[0]), wanted)
            if not rest and own * views in lengths:
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
        """As for `x.view(batch_size, -1)` of a tensor with the probe's rows."""
        given = len(args) == 2 and isinstance(args[1], (tuple, list))
        sizes = args[1] if given else args[1:]
        if not sizes or type(sizes[0]) is not int or sizes[0] != self._resizer.own:
            return args
        made = (self._resizer.wanted, *sizes[1:])
        return (args[0], made) if given else (args[0], *made)


def _is_data(tensor: Tensor) -> bool:
    """Whether the tensor is no weight of a model."""
    return not (tensor.requires_grad and tensor.is_leaf)


def _mode(torch: Torch, call: Call) -> Any:
    """A mode that torch calls in place of each of its functions."""

    class Mode(torch.overrides.TorchFunctionMode):  # pyright: ignore[reportUntypedBaseClass]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(func, args, kwargs or {})

    return Mode()
