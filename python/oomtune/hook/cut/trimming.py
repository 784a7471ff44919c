"""Whether padding can be left out of a module's micro-batches: shown by running it with and without, before it is done. What it
returns for padding is left out too, so that a script that reads such an output gets all of it."""

from __future__ import annotations

from .comparison import COARSE, FINE
from .pytree import tree_leaves
from .refusal import Mismatch
from .row_group import RowGroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Leaves, Tensor, Torch, Tree
    from .batch_dims import BatchDims
    from .padding import Padding
    from .sandbox import Sandbox

#: Kinds of padding that are looked at: a script that always brings new ones is not worth the time.
MOST_KINDS = 8
#: What may be asked of an output without reading it.
UNREAD = ("__get__", "size", "dim", "numel", "is_floating_point", "is_complex", "__repr__", "stride", "element_size")


class Trimming:
    """For one module. `run(leaves)` runs it on other inputs."""

    def __init__(self, torch: Torch, note: Callable[[str], None]) -> None:
        self._torch = torch
        self._note = note
        #: By kind of padding: the number of each output as wide as the inputs, and that dimension; None: it cannot be left out.
        self._proved: dict[Any, dict[int, int] | None] = {}
        self._read = False
        self._watched = False
        self._class: Any = None

    def follow(self, other: Trimming) -> None:
        """What the script reads of outputs is known of the other."""
        self._read, self._watched = other._read, other._watched

    def outputs(
        self,
        padding: Padding,
        leaves: Leaves,
        dims: BatchDims,
        run: Callable[[Leaves], Tree],
        sandbox: Sandbox,
        fine: bool,
    ) -> dict[int, int] | None:
        """By number of each output that is shorter without padding: its dimension. None: padding cannot be left out."""
        if self._read or not padding.filled or any(dims.dims[number] != 0 for number in padding.filled):
            return None
        kind = padding.kind
        if kind not in self._proved:
            rows = sorted(range(dims.count), key=lambda row: padding.lengths[row])[:2]
            if padding.window(rows) is None or len(self._proved) >= MOST_KINDS:
                return None
            try:
                self._proved[kind] = self._compared(padding, rows, leaves, dims, run, sandbox, fine)
            except Mismatch as reason:
                self._proved[kind] = None
                self._note(str(reason))
        found = self._proved[kind]
        # The script may read them: one call with all of them shows it.
        return found if not found or self._watched else None

    def _compared(
        self,
        padding: Padding,
        rows: list[int],
        leaves: Leaves,
        dims: BatchDims,
        run: Callable[[Leaves], Tree],
        sandbox: Sandbox,
        fine: bool,
    ) -> dict[int, int]:
        """Runs two short rows with and without their padding. Raises Mismatch if that makes a difference."""
        torch, window = self._torch, padding.window(rows)
        assert window is not None
        if padding.left and not fine:
            raise Mismatch("in low precision a shift of the positions might not show")
        group = RowGroup(torch, rows, window)
        plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        with sandbox.entered(True, True) as random, torch.no_grad():
            whole = tree_leaves(torch, run(dims.parts(plain, group)))
            random.restore()
            try:
                short = tree_leaves(torch, run(dims.parts(plain, group, tuple(padding.filled))))
            except Exception as error:
                from ..report.exceptions import is_oom

                if is_oom(error):
                    raise
                raise Mismatch(
                    "it fails without padding (%s: %s)" % (type(error).__name__, str(error)[:200])
                ) from error
        if len(whole) != len(short):
            raise Mismatch("what it returns has another structure without padding")
        found: dict[int, int] = {}
        for number, (one, other) in enumerate(zip(whole, short)):
            if not isinstance(one, torch.Tensor):
                continue
            if one.shape != getattr(other, "shape", None):
                found[number] = dim = _cut_dim(one, other, padding.width, window[1])
                kept = one.narrow(dim, *window)
            else:
                kept = one
            wanted, value = torch.nan_to_num(kept.double()), torch.nan_to_num(other.double())
            if float((wanted - value).norm()) > (FINE if fine else COARSE) * max(float(wanted.norm()), 1e-30):
                raise Mismatch("padding changes what it returns")
        return found

    def watched(self, leaves: Leaves, padding: Padding) -> Leaves:
        """The leaves of an output. Those that padding makes longer are such that it is seen whether the script reads them."""
        numbers = self._proved.get(padding.kind)
        if self._read or not numbers:
            return leaves
        self._watched = True
        self._class = self._class or _watching(self._torch, self._was_read)
        return [leaf.as_subclass(self._class) if at in numbers else leaf for at, leaf in enumerate(leaves)]

    def _was_read(self) -> None:
        if not self._read:
            self._read = True
            self._note("the script reads an output with a value for each token")


def _cut_dim(one: Tensor, other: Tensor, width: int, length: int) -> int:
    differ = [dim for dim in range(one.dim()) if dim >= other.dim() or one.shape[dim] != other.shape[dim]]
    if one.dim() != other.dim() or len(differ) != 1 or differ[0] == 0 or one.shape[differ[0]] != width:
        raise Mismatch("its outputs have no value for each token that could be left out")
    if other.shape[differ[0]] != length:
        raise Mismatch("its outputs have no value for each token that could be left out")
    return differ[0]


def _watching(torch: Torch, read: Callable[[], None]) -> Any:
    plain: Any = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction

    class Output(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") not in UNREAD:
                read()
            with plain():
                return func(*args, **(kwargs or {}))

    return Output
