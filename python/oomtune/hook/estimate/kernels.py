"""What a GPU's own kernels hold beside their results, where torch chooses others for tensors without a device."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..types import Tensor, Torch


def workspace(name: str, args: Any) -> int:
    """Bytes that the operator's kernel takes on a GPU while it runs, beside its results."""
    if name == "_scaled_dot_product_flash_attention_backward":
        return int(args[1].numel()) * 4  # the gradient of the queries is summed in fp32
    if name == "embedding_dense_backward":
        return int(args[1].numel()) * 8 * 4  # the indices, sorted, and where each came from
    if name in ("sort", "topk"):
        return int(args[0].numel()) * (args[0].element_size() + 8)
    return 0


def install(torch: Torch, on_card: Callable[[Any], bool]) -> None:
    functional = torch.nn.functional
    attention = functional.scaled_dot_product_attention
    dropout = torch.dropout

    @functools.wraps(attention)
    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if not on_card(query) or query.dim() != 4:
            extra = {"enable_gqa": True} if enable_gqa else {}
            return attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **extra)
        # A grouped key stands once in the graph; the kernels of half precision read it in place.
        half = query.dtype in (torch.float16, torch.bfloat16)
        groups = query.shape[1] // key.shape[1] if enable_gqa else 1
        if groups > 1 and (not half or attn_mask is not None):
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        width = query.shape[-1]
        if half and attn_mask is None and width <= 256:
            pad = -width % 8
            if pad:
                query, key, value = (functional.pad(part, (0, pad)) for part in (query, key, value))
            result = torch.ops.aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, scale=scale
            )[0]
            return result[..., :width] if pad else result
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -1e9)
            shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            attn_mask = torch.broadcast_to(attn_mask, shape)
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, bool(torch.is_grad_enabled()), dropout_p, is_causal, scale=scale
        )[0]

    def fused_dropout(input: Tensor, p: float, train: bool) -> Tensor:
        if train and 0 < p < 1 and on_card(input):
            return torch.native_dropout(input, p, True)[0]  # keeps one byte an element
        return dropout(input, p, train)

    functional.scaled_dot_product_attention = scaled_dot_product_attention
    torch._C._nn.scaled_dot_product_attention = scaled_dot_product_attention
    torch.dropout = torch._VF.dropout = fused_dropout
