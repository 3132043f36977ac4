"""The target, plainly: one sequence, no cache, no batch. The oracle that serving is tested against.

Shapes: T tokens, H hidden, N query heads, K key/value heads, D head dimension, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.model.rope import inverse_frequencies, rope_magnitude

__all__ = ["causal_attention", "llama", "norm", "rotate"]


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, config: LlamaConfig) -> Tensor:
    """Rotary embedding of `x` [T, heads, D] at `positions` [T]."""
    angles = positions[:, None].float() * inverse_frequencies(config.rope_scaling, config.head_dim, config.rope_theta)
    magnitude = rope_magnitude(config.rope_scaling)
    cos, sin = (magnitude * angles.cos())[:, None].to(x.dtype), (magnitude * angles.sin())[:, None].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`queries` [T, N, D] against `keys`, `values` [T, K, D]; returns [T, N * D]."""
    group = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qnd,knd->nqk", queries, keys) / math.sqrt(queries.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    return torch.einsum("nqk,knd->qnd", weights, values).flatten(1)


def llama(token_ids: Tensor, config: LlamaConfig, weights: LlamaWeights) -> tuple[Tensor, list[Tensor]]:
    """Logits [T, V] of `token_ids` [T], and the residual stream [T, H] entering each layer (the last: after all layers)."""
    positions = torch.arange(len(token_ids))
    num_heads, num_kv, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
    hidden = weights.embed[token_ids]
    streams = [hidden]
    for layer in weights.layers:
        qkv = norm(hidden, layer.input_norm, config.rms_norm_eps) @ layer.qkv.T
        queries, keys, values = qkv.view(-1, num_heads + 2 * num_kv, head_dim).split([num_heads, num_kv, num_kv], dim=1)
        mixed = causal_attention(rotate(queries, positions, config), rotate(keys, positions, config), values)
        hidden = hidden + mixed @ layer.out.T
        gate, up = (norm(hidden, layer.post_norm, config.rms_norm_eps) @ layer.gate_up.T).chunk(2, dim=-1)
        hidden = hidden + (torch.nn.functional.silu(gate) * up) @ layer.down.T
        streams.append(hidden)
    return norm(hidden, weights.norm, config.rms_norm_eps) @ weights.head.T, streams
