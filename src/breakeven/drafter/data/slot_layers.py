"""What a batched decoder computes in its layers: one step of every slot, and a padded group of prompts. Shapes as there."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.layer_functions import after_attention, causal_attention, rms_norm, rotate
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights

__all__ = ["before_attention", "prefill", "step_attention", "visible"]


def before_attention(
    hidden: Tensor,
    input_norm: Tensor,
    qkv_weight: Tensor,
    eps: float,
    heads: tuple[int, int],
    cos: Tensor,
    sin: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    kv_heads: Tensor,
    positions: Tensor,
) -> Tensor:
    """Project `hidden` [S, H], store the new keys and values in the caches [S, K, P, D]; returns rotated queries [S, N, D].

    `heads` is (N, K); `slots` [S, 1], `kv_heads` [1, K] and `positions` [S, 1] say where in the caches.
    """
    qkv = F.linear(rms_norm(hidden, input_norm, eps), qkv_weight).view(len(hidden), -1, keys.shape[-1])
    new_queries, new_keys, new_values = qkv.split((heads[0], heads[1], heads[1]), dim=1)
    keys[slots, kv_heads, positions] = rotate(new_keys, cos, sin)
    values[slots, kv_heads, positions] = new_values
    return rotate(new_queries, cos, sin)


def visible(lengths: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [S, 1, 1, length]: zero below each slot's length."""
    hidden_positions = torch.arange(length, device=lengths.device)[None] >= lengths[:, None]
    mask = torch.zeros(hidden_positions.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(hidden_positions, -torch.inf)[:, None, None]


def step_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """`queries` [S, N, D] against [S, K, L, D]; returns [S, N * D]. The heads of a group are rows that share keys."""
    slots, num_heads, head_dim = queries.shape
    grouped = queries.view(slots, keys.shape[1], num_heads // keys.shape[1], head_dim)
    return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(slots, num_heads * head_dim)


def prefill(
    config: LlamaConfig,
    weights: LlamaWeights,
    token_ids: Tensor,
    slots: Tensor,
    caches: Iterable[tuple[Tensor, Tensor]],
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """Padded prompts [R, L] into the caches of `slots` [R]; returns the stream after the last layer [R, L, H].

    Prompts are padded on the right, so causal attention needs no mask. What padding writes to the cache lies beyond the
    sequence's end and is overwritten before it is read. `caches` has keys and values of each layer [S, K, P, D], `tables` cos and
    sin of the positions [L, 1, D].
    """
    rows, length = token_ids.shape
    eps, heads = config.rms_norm_eps, (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    hidden = weights.embed[token_ids]
    for layer, (layer_keys, layer_values) in zip(weights.layers, caches, strict=True):
        qkv = F.linear(rms_norm(hidden, layer.input_norm, eps), layer.qkv)
        queries, keys, values = qkv.view(rows, length, -1, config.head_dim).split(heads, dim=2)
        queries, keys = rotate(queries, *tables).transpose(1, 2), rotate(keys, *tables).transpose(1, 2)
        values = values.transpose(1, 2)
        layer_keys[:, :, :length].index_copy_(0, slots, keys)
        layer_values[:, :, :length].index_copy_(0, slots, values)
        mixed = causal_attention(queries, keys, values)
        hidden = after_attention(hidden, mixed, layer.out, layer.post_norm, layer.gate_up, layer.down, eps)
    return hidden
