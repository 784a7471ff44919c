"""Runs each operator on shapes alone where the script asks for the card.

Tensors on the card are torch's meta tensors. Small ones of whole numbers, and single numbers, keep a copy of their values on the
host (their known value), as scripts and libraries branch on masks and losses.
"""

# torch 1.13 has no such mode.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

from .kernels import workspace
from .trees import tensors_of, with_tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Tensor, Torch, Tree
    from .ledger import CardLedger


#: The most elements of a tensor whose values are kept: of whole numbers, of others.
KNOWN_INTEGERS, KNOWN_FLOATS = 1 << 16, 16
KNOWN = "_oomtune_known"
#: Operators that draw random numbers or read memory as it is have no values to be known.
UNKNOWABLE = ("rand", "normal", "bernoulli", "empty", "dropout", "uniform", "exponential", "multinomial")
#: Operators whose work is on values alone: on the card they change nothing that is counted.
SKIPPED = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")
#: How many there are depends on values; if these are not known, all are taken.
DATA_DEPENDENT = "It picks samples by their values, which are not known here: all of them are counted."


def card_mode(torch: Torch, ledger: CardLedger) -> Any:
    """Of the kind that `with` turns on, for the operators within."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operators = CardOperators(torch, ledger)

    class CardMode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return operators.run(func, args, dict(kwargs or {}))

    return CardMode()


class CardOperators:
    def __init__(self, torch: Torch, ledger: CardLedger) -> None:
        self._torch = torch
        self._ledger = ledger
        self._meta = torch.device("meta")
        self._mutated: dict[Any, list[int]] = {}

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        torch = self._torch
        tensors = list(self._tensors((args, kwargs)))
        on_card = [tensor for tensor in tensors if self._on_card(tensor)]
        device = kwargs.get("device")
        kind = None if device is None else torch.device(device).type
        # Backward passes ask for the device that torch itself sees.
        asked = kind == "cuda" or (kind == "meta" and (len(on_card) > 0 or torch._C._current_graph_task_id() != -1))
        if not asked and not on_card:
            return func(*args, **kwargs)
        before, self._ledger.inside = self._ledger.inside, True
        try:
            return self._dispatch(func, args, kwargs, device, asked, tensors, on_card)
        finally:
            self._ledger.inside = before

    def _dispatch(
        self, func: Any, args: Any, kwargs: Any, device: Any, asked: bool, tensors: list[Tensor], on_card: list[Tensor]
    ) -> Any:
        name = func._schema.name.split("::")[1]
        if name == "_local_scalar_dense":
            return self._number(on_card[0])
        if name == "copy_":
            return self._copy(args[0], args[1])
        if name == "_to_copy" and device is not None and not asked:
            return self._to_host(args[0], kwargs)
        if name in SKIPPED:
            return None
        if asked:
            kwargs["device"] = self._meta
        if kwargs.get("pin_memory") is not None:
            kwargs["pin_memory"] = None
        if name == "_pin_memory" or name == "pin_memory":
            return args[0]
        known = self._known_result(func, name, args, kwargs, tensors)
        result = self._run(func, name, args, kwargs, known)
        self._note(name, args)
        for tensor in self._tensors(result):
            if self._is_meta(tensor):
                self._ledger.add(tensor)
        for tensor in on_card:
            if name.startswith("resize") or name == "set_":
                self._ledger.add(tensor)
        self._remember(func, name, args, result, known)
        return result

    # -- what an operator does to shapes

    def _run(self, func: Any, name: str, args: Any, kwargs: Any, known: Any) -> Any:
        if name in ("nonzero", "masked_select", "unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"):
            return self._by_values(func, name, args, kwargs, known)
        args, kwargs = self._map((args, kwargs), self._shape_of_host)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
            args = (args[0], self._whole_numbers(args[1]), *args[2:])
        if "generator" in kwargs:
            kwargs["generator"] = None
        if name == "repeat_interleave" and known is not None:
            return self._shaped(known)
        try:
            return func(*args, **kwargs)
        except NotImplementedError as error:
            mutated = self._written(func)
            if mutated:
                return args[mutated[0]] if len(func._schema.returns) else None
            raise Unknown(str(func), error) from error

    def _by_values(self, func: Any, name: str, args: Any, kwargs: Any, known: Any) -> Any:
        if known is not None:
            return self._map(known, self._shaped)
        self._ledger.notes.add(DATA_DEPENDENT)
        of = args[0]
        if name == "nonzero":
            return self._empty((of.numel(), of.dim()), self._torch.int64)
        if name == "masked_select":
            return self._empty((of.numel(),), of.dtype)
        raise Unknown(str(func), None)

    def _whole_numbers(self, indices: Any) -> Any:
        """Masks among indices as the whole numbers that they stand for."""
        torch = self._torch
        made: list[Any] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                made.append(index)
                continue
            value = self._value(index)
            if value is None:
                self._ledger.notes.add(DATA_DEPENDENT)
            count = index.numel() if value is None else int(value.sum())
            made.extend(self._empty((count,), torch.int64) for _ in range(index.dim()))
        return made

    def _shape_of_host(self, tensor: Tensor) -> Tensor:
        """Operators of the card take single numbers and indices of the host, too."""
        if self._is_meta(tensor) or tensor.dim() == 0:
            return tensor
        shape = self._torch.empty_like(tensor, device=self._meta)
        setattr(shape, KNOWN, tensor if self._small(tensor) else None)
        return shape

    # -- between host and card

    def _to_host(self, tensor: Tensor, kwargs: dict[str, Any]) -> Tensor:
        dtype = kwargs.get("dtype") or tensor.dtype
        value = self._value(tensor)
        if value is not None:
            return value.to(dtype, copy=True)
        made = self._torch.empty(tensor.shape, dtype=dtype)
        return made.zero_() if dtype == self._torch.bool else made.fill_(1)

    def _copy(self, target: Tensor, source: Tensor) -> Tensor:
        value = self._value(source) if self._on_card(source) else source
        if not self._on_card(target):
            return target.copy_(value) if value is not None else target.fill_(1)
        held, own = self._ledger.holding(target), self._value(target)
        if own is not None and value is not None:
            own.copy_(value)
        elif held is not None:
            held.unknown = True
        return target

    def _number(self, tensor: Tensor) -> Any:
        value = self._value(tensor)
        if value is not None:
            return value.item()
        return False if tensor.dtype == self._torch.bool else 1.0 if tensor.is_floating_point() else 1

    # -- known values

    def _value(self, tensor: Tensor) -> Tensor | None:
        if not self._is_meta(tensor):
            return tensor if self._small(tensor) else None
        held = self._ledger.holding(tensor)
        return None if held is not None and held.unknown else getattr(tensor, KNOWN, None)

    def _small(self, tensor: Tensor) -> bool:
        return int(tensor.numel()) <= (KNOWN_FLOATS if tensor.is_floating_point() else KNOWN_INTEGERS)

    def _known_result(self, func: Any, name: str, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """What the operator makes of values that are all known; None: some are not."""
        if name.startswith(("_foreach", "_fused")) or any(part in name for part in UNKNOWABLE):
            return None
        if any(self._value(tensor) is None for tensor in tensors):
            return None
        if not tensors and not self._makes_few(args):
            return None
        args, kwargs = self._map((args, kwargs), self._value)
        if kwargs.get("device") is not None:
            kwargs["device"] = self._torch.device("cpu")
        try:
            return func(*args, **kwargs)
        except Exception:  # the script's own error comes where the shapes are worked out
            return None

    def _makes_few(self, args: Any) -> bool:
        """Of operators without tensors: whether they make a small one."""
        size = args[0] if args and isinstance(args[0], (list, tuple)) else ()
        count = 1
        for part in size:
            count *= int(part)
        numbers = [abs(part) for part in args if isinstance(part, (int, float)) and not isinstance(part, bool)]
        return max([count, *numbers]) <= KNOWN_INTEGERS

    def _remember(self, func: Any, name: str, args: Any, result: Any, known: Any) -> None:
        if known is None:
            for position in self._written(func):
                for tensor in self._tensors(args[position] if position < len(args) else ()):
                    held = self._ledger.holding(tensor)
                    if held is not None:
                        held.unknown = True
            self._suppose(name, result)
            return
        for tensor, value in zip(self._tensors(result), self._tensors(known)):
            if self._small(value) and tensor.shape == value.shape:
                setattr(tensor, KNOWN, value)

    def _suppose(self, name: str, result: Any) -> None:
        """A single number that is not known is taken to be one, so that a loss is finite; no value is found to be wrong."""
        if not isinstance(result, self._torch.Tensor) or result.dim() != 0:
            return
        if result.is_floating_point() and not name.endswith("_"):
            setattr(result, KNOWN, self._torch.ones((), dtype=result.dtype))
        elif result.dtype == self._torch.bool:
            setattr(result, KNOWN, self._torch.tensor(name == "all"))

    # -- helpers

    def _note(self, name: str, args: Any) -> None:
        if name in ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "_scaled_mm"):
            self._ledger.multiplies = True
        elif name.startswith(("convolution", "_cudnn_rnn")):
            self._ledger.convolves = True
        self._ledger.temporary(workspace(name, args))

    def _written(self, func: Any) -> list[int]:
        """Positions of the arguments that the operator writes to."""
        if func not in self._mutated:
            arguments = func._schema.arguments
            self._mutated[func] = [
                at for at, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write
            ]
        return self._mutated[func]

    def _is_meta(self, tensor: Tensor) -> bool:
        return bool(self._torch._C._TensorBase.device.__get__(tensor).type == "meta")

    def _on_card(self, tensor: Tensor) -> bool:
        return self._is_meta(tensor) and self._ledger.holding(tensor) is not None

    def _empty(self, shape: Any, dtype: Any) -> Tensor:
        return self._torch.empty(shape, dtype=dtype, device=self._meta)

    def _shaped(self, tensor: Tensor) -> Tensor:
        return self._torch.empty_like(tensor, device=self._meta)

    def _tensors(self, tree: Tree) -> Any:
        return tensors_of(self._torch, tree)

    def _map(self, tree: Tree, change: Callable[[Tensor], Any]) -> Any:
        return with_tensors(self._torch, tree, change)


class Unknown(RuntimeError):
    """An operator that works on values, or that torch knows no shapes of."""

    def __init__(self, operator: str, cause: Exception | None) -> None:
        super().__init__(
            "oomtune estimate cannot follow %s, whose result depends on values or is not known without a GPU%s"
            % (operator, "" if cause is None else ": %s" % str(cause).split("\n")[0])
        )
