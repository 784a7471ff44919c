"""The output of a model's head (its last linear layer) that is not computed until something else than cross-entropy asks for it.

It is a tensor by its shape and type. Views that keep rows whole, a scale and a soft cap give another of its kind, cross-entropy is computed in chunks, and
any other function gets the real output. A function that torch does not tell of (in C++) sees NaN, and its backward pass fails.
"""

# The objects that this reads belong to the script and can be of any type.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import functools
import weakref

from .chunked_cross_entropy import Settings, chunked_cross_entropy
from .head_call import Source, autocast_dtype
from .logit_changes import SCALINGS, change_of, scale_of
from .row_index import rows_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..types import Call, Torch

#: Answered by the shape and type alone.
FACTS = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "layout",
        "ndim",
        "requires_grad",
        "is_cuda",
        "is_cpu",
        "is_mps",
        "is_sparse",
        "is_quantized",
        "is_meta",
        "is_nested",
        "is_leaf",
        "size",
        "dim",
        "numel",
        "nelement",
        "__len__",
        "is_floating_point",
        "is_complex",
        "ndimension",
        "get_device",
        "__hash__",
        "element_size",
        "itemsize",
    ]
)
RESHAPES = frozenset(["view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"])
SAME = frozenset(["contiguous", "float", "to", "requires_grad_"])


def lazy(torch: Torch, source: Source) -> Any:
    """The tensor that stands for `source`."""
    fake = torch.full((1,), float("nan"), dtype=source.dtype, device=source.hidden.device).expand(source.shape())
    made = torch.Tensor._make_subclass(kind(torch), fake, source.grad)
    if source.grad:
        with torch._C.DisableTorchFunction():
            made.register_hook(_unseen)
    made.__dict__["_oomtune_source"] = source
    return made


def source_of(value: Any) -> Source | None:
    return getattr(value, "__dict__", {}).get("_oomtune_source") if type(value).__name__ == "LazyLogits" else None


def _unseen(_: Any) -> None:
    raise RuntimeError(
        "a function used the logits unseen by torch, while oomtune computes the loss in chunks and they are never made"
    )


@functools.lru_cache(maxsize=1)
def kind(torch: Torch) -> Any:
    class LazyLogits(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            if name == "__get__":
                name = getattr(getattr(func, "__self__", None), "__name__", "")
            source = source_of(args[0]) if args else None
            if source is not None and not source.known():
                if name in FACTS:
                    with torch._C.DisableTorchFunction():
                        return func(*args, **kwargs)
                answer = _lazily(torch, name, func, args, kwargs, source)
                if answer is not None:
                    return answer
            elif source is None and "input" in kwargs and name == "cross_entropy":
                more = dict(kwargs)
                return cls.__torch_function__(func, types, (more.pop("input"), *args), more)
            elif source is None and SCALINGS.get(name) == "mul" and len(args) == 2 and source_of(args[1]) is not None:
                # A scale times the logits.
                return cls.__torch_function__(func, types, (args[1], args[0]), kwargs)
            return func(*real(args, name), **real(kwargs, name))

    return LazyLogits


def real(value: Any, name: str) -> Any:
    """`value` with the real output in place of each lazy tensor; `name`: of the function that uses it."""
    source = source_of(value)
    if source is not None:
        if not source.known():
            source.head.used(name)
        return source.full(name)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(real(item, name) for item in value)
    if type(value) is list:
        return [real(item, name) for item in value]
    if type(value) is dict:
        return {key: real(item, name) for key, item in value.items()}
    return value


def _lazily(torch: Torch, name: str, func: Any, args: Any, kwargs: Any, source: Source) -> Any:
    """The result without the real output; None: it is needed."""
    if name == "cross_entropy":
        return _loss(torch, source, *args[1:], **kwargs)
    if name == "grad_fn" and source.grad:
        # Asked to learn whether there is a graph.
        return source.hidden.grad_fn
    change = change_of(name, args, kwargs)
    if change is not None:
        changes = (*source.changes, change)
        return _view(torch, source, lambda hidden: hidden, func, args, kwargs, moved=source.moved, changes=changes)
    scale = scale_of(torch, name, args, kwargs, source)
    if scale is not None:
        scaled = getattr(torch, SCALINGS[name])
        flows = (source.grad or scale.requires_grad) and torch.is_grad_enabled()
        return _view(torch, source, lambda hidden: scaled(hidden, scale), func, args, kwargs, flows, source.moved)
    if source.moved:
        return None
    if name in RESHAPES:
        with torch._C.DisableTorchFunction():
            viewed = func(*args, **kwargs)
            shape = viewed.shape
        if viewed.dtype != source.dtype or not len(shape) or shape[-1] != source.head.classes or len(shape) < 2:
            return None
        return _view(torch, source, lambda hidden: hidden.reshape(*shape[:-1], hidden.shape[-1]), func, args, kwargs)
    if name == "__getitem__":
        index = rows_of(args[1], len(source.shape()))
        if index is None:
            return None
        return _view(torch, source, lambda hidden: hidden[index], func, args, kwargs)
    if name == "detach" and not kwargs:
        return _view(torch, source, lambda hidden: hidden.detach(), func, args, kwargs, grad=False)
    if name in SAME:
        return _same(torch, name, func, args, kwargs, source)
    if name in ("transpose", "permute") and len(source.shape()) == 3 and not kwargs:
        with torch._C.DisableTorchFunction():
            stands = torch.empty(source.shape(), device="meta")
            moved = func(stands, *args[1:]).stride() == stands.transpose(1, 2).stride()
        if moved:
            return _view(torch, source, lambda hidden: hidden, func, args, kwargs, moved=True)
    return None


def _same(torch: Torch, name: str, func: Any, args: Any, kwargs: Any, source: Source) -> Any:
    """Single precision of the same, or itself."""
    if name == "requires_grad_":
        return args[0] if source.grad and args[1:] in ((), (True,)) else None
    if name == "contiguous":
        return args[0] if not kwargs and not args[1:] else None
    with torch._C.DisableTorchFunction():
        result = func(torch.empty(0, dtype=source.dtype, device=source.hidden.device), *real(args[1:], name), **kwargs)
    if result.device != source.hidden.device or kwargs.get("copy"):
        return None
    if result.dtype == source.dtype:
        return args[0]
    if result.dtype != torch.float32 or source.dtype == torch.float64:
        return None
    return _view(torch, source, lambda hidden: hidden, func, args, kwargs, dtype=torch.float32)


def _view(
    torch: Torch,
    source: Source,
    change: Call,
    func: Any,
    args: Any,
    kwargs: Any,
    grad: bool | None = None,
    moved: bool = False,
    dtype: Any = None,
    changes: Any = None,
) -> Any:
    flows = source.grad and torch.is_grad_enabled() if grad is None else grad
    made, changes = change(source.hidden), source.changes if changes is None else changes
    view = Source(source.head, made, dtype or source.dtype, flows, moved, source, changes)
    source.views.append((weakref.ref(view), lambda full: func(full, *args[1:], **kwargs)))
    return lazy(torch, view)


def _loss(torch: Torch, source: Source, target: Any = None, *args: Any, **kwargs: Any) -> Any:
    names = ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
    given = {**dict(zip(names, args)), **kwargs}
    if given.pop("size_average", None) is not None or given.pop("reduce", None) is not None:
        return None
    class_weight = given.get("weight")
    shape = source.shape()
    if not isinstance(target, torch.Tensor) or source_of(target) is not None or target.dtype != torch.int64:
        return None
    if target.shape != (shape[0], *shape[2:]) or len(shape) != (3 if source.moved else 2):
        return None
    if target.device != source.hidden.device or set(given) - set(names):
        return None
    reduction = given.get("reduction", "mean")
    if reduction not in ("mean", "sum", "none") or target.numel() == 0:
        return None
    head, hidden = source.head, source.hidden
    wide = autocast_dtype(torch, hidden.device.type) is not None and source.dtype != torch.float64
    loss_dtype = torch.float32 if wide else source.dtype
    if class_weight is not None and (class_weight.requires_grad or class_weight.dtype != loss_dtype):
        return None
    settings = Settings(
        head.dtype,
        loss_dtype,
        class_weight,
        given.get("ignore_index", -100),
        reduction,
        given.get("label_smoothing", 0.0),
        source.changes,
    )
    rows = hidden.reshape(-1, hidden.shape[-1])
    with torch.set_grad_enabled(source.grad and torch.is_grad_enabled()):
        loss = chunked_cross_entropy(torch, rows, head.weight, head.bias, target.reshape(-1), settings)
    head.chunked()
    return loss.reshape(target.shape) if reduction == "none" else loss
