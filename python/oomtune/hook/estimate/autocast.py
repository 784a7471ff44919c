"""Autocast of the card: torch chooses its casts by the device of a tensor's memory, of which there is none."""

from __future__ import annotations

import functools
import weakref

from .trees import tensors_of, with_tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Call, Tensor, Torch


#: torch's lists for CUDA (aten/src/ATen/autocast_mode.h), by the names under which Python calls them.
LOWER = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_tbc",
    "scaled_dot_product_attention", "matmul", "__matmul__", "__rmatmul__", "mm", "mv", "bmm", "addmm", "addmv", "addr", "baddbmm",
    "addbmm", "chain_matmul", "einsum", "prelu", "multi_dot", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell",
)  # fmt: skip
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "einsum")
FLOAT = (
    "softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "norm", "exp", "log", "log10", "log2", "log1p", "expm1", "pow",
    "__pow__", "__rpow__", "reciprocal", "rsqrt", "sinh", "cosh", "tan", "acos", "asin", "erfinv", "softplus", "cosine_similarity",
    "cosine_embedding_loss", "nll_loss", "cross_entropy", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss", "hinge_embedding_loss",
    "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss", "cdist", "dist", "pdist", "renorm", "logsumexp", "cumprod",
    "cumsum", "prod", "sum",
)  # fmt: skip
WIDEST = (
    "cat",
    "stack",
    "bilinear",
    "cross",
    "dot",
    "tensordot",
    "addcdiv",
    "addcmul",
    "atan2",
    "index_put",
    "scatter_add",
    "grid_sample",
)


class Autocast:
    def __init__(self, torch: Torch, on_card: Callable[[Any], bool]) -> None:
        self._torch = torch
        self._on_card = on_card
        self._inside = False
        #: Weights in lower precision: each is cast once until autocast ends.
        self._cache: dict[int, tuple[Any, Tensor]] = {}

    def install(self) -> None:
        torch = self._torch
        places = (torch, torch.Tensor, torch.nn.functional, torch._C._nn, torch.special, torch.linalg, torch._VF)
        for names, cast in ((LOWER, self._to_lower), (FLOAT, self._to_float), (WIDEST, self._to_widest)):
            for name in names:
                wrapped: dict[Any, Any] = {}
                for place in places:
                    # _VF passes on what torch has; torch calls it itself for these alone.
                    original = getattr(place, name, None) if place is not torch._VF or name in RECURRENT else None
                    if callable(original):
                        wrapped.setdefault(original, self._wrapped(original, cast))
                        setattr(place, name, wrapped[original])
        clear = torch.clear_autocast_cache

        @functools.wraps(clear)
        def clear_autocast_cache() -> None:
            self._cache.clear()
            clear()

        torch.clear_autocast_cache = clear_autocast_cache

    def _wrapped(self, original: Call, cast: Callable[[Any, list[Tensor]], Any]) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._enabled():
                return original(*args, **kwargs)
            tensors = [
                one for one in tensors_of(self._torch, (args, kwargs)) if one.is_floating_point() and self._on_card(one)
            ]
            if not tensors:
                return original(*args, **kwargs)
            args, kwargs = self._cast((args, kwargs), cast(original, tensors))
            # What the operator is made of sees no autocast, as in torch.
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False

        return call

    def _enabled(self) -> bool:
        return bool(self._torch.is_autocast_enabled("cuda"))

    def _to_lower(self, original: Call, tensors: list[Tensor]) -> Any:
        return self._torch.get_autocast_dtype("cuda")

    def _to_float(self, original: Call, tensors: list[Tensor]) -> Any:
        return self._torch.float32

    def _to_widest(self, original: Call, tensors: list[Tensor]) -> Any:
        kinds = {tensor.dtype for tensor in tensors}
        return None if len(kinds) == 1 else self._torch.float32

    def _cast(self, tree: Any, dtype: Any) -> Any:
        if dtype is None:
            return tree

        def change(tensor: Tensor) -> Tensor:
            eligible = tensor.is_floating_point() and tensor.dtype not in (dtype, self._torch.float64)
            return self._weight(tensor, dtype) if eligible and self._on_card(tensor) else tensor

        return with_tensors(self._torch, tree, change)

    def _weight(self, tensor: Tensor, dtype: Any) -> Tensor:
        torch = self._torch
        kept = tensor.is_leaf and tensor.requires_grad and tensor.dtype == torch.float32 and dtype != torch.float32
        if not kept or not torch.is_autocast_cache_enabled():
            return tensor.to(dtype)
        held = self._cache.get(id(tensor))
        if held is None or held[0]() is not tensor:
            held = self._cache[id(tensor)] = (weakref.ref(tensor), tensor.to(dtype))
        return held[1]
