"""The parts of a Llama layer that need no cache, for any device. Shapes as in `llama.py`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by
from torch.nn.attention import SDPBackend, sdpa_kernel

from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.model.rope import inverse_frequencies, rope_magnitude

__all__ = ["after_attention", "causal_attention", "rms_norm", "rotary_tables", "rotate"]

# Not cuDNN's, which plans anew for each shape, and groups of sequences come in many.
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotary_tables(config: LlamaConfig, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [T, 1, D] of `positions` [T], worked out in float32; the sign of the rotated half is folded into sin."""
    frequencies = inverse_frequencies(config.rope_scaling, config.head_dim, config.rope_theta)
    if positions.is_cuda:
        frequencies = frequencies.pin_memory()  # a plain copy waits for all that is queued, once a capture
    frequencies = frequencies.to(positions.device, non_blocking=True)
    angles = positions[:, None, None].float() * frequencies
    cos, sin = (rope_magnitude(config.rope_scaling) * table for table in (angles.cos(), angles.sin()))
    return torch.cat([cos, cos], dim=-1).to(dtype), torch.cat([-sin, sin], dim=-1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of `x` [..., T, heads, D] with the tables above."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([second, first], dim=-1) * sin


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`queries` [S, N, T, D] over `keys` and `values` [S, K, T, D] of whole sequences; returns [S, T, N * D]."""
    with sdpa_kernel(_ATTENTION):
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1])
    return mixed.transpose(1, 2).flatten(2)


def after_attention(
    hidden: Tensor, mixed: Tensor, out: Tensor, post_norm: Tensor, gate_up: Tensor, down: Tensor, eps: float
) -> Tensor:
    """Output projection and MLP, each added to the residual stream `hidden` [..., H]; `mixed` [..., N * D]."""
    hidden = hidden + F.linear(mixed, out)
    gate, up = F.linear(rms_norm(hidden, post_norm, eps), gate_up).chunk(2, dim=-1)
    return hidden + F.linear(F.silu(gate) * up, down)
