"""The stages of one step as plain functions, and the table of those in use.

Written so that each stage can be compiled by itself (`kernel_choice`): every step then calls the same few kernels with the same
shapes, so compiling takes a minute in all, not a minute a step.

Shapes: N rows, H hidden, Q query heads, K key/value heads, D head dimension, P = (Q + 2K) D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.training.attention import Attend, attend_samples, merge_own_steps
from breakeven.drafter.training.batch import TrainingBatch
from breakeven.drafter.training.vocabulary_loss import SoftmaxPass, softmax_pass

__all__ = ["Kernels"]

Stage = Callable[..., Any]


def combine(auxiliary: Tensor, scales: Tensor, fc_norm: Tensor | None, fc: Tensor, eps: float) -> Tensor:
    """First states [N, H] from auxiliary states [N, 3H]; scaled in float32, since the first position may be in the thousands."""
    three = auxiliary.unflatten(-1, (3, -1)).float() * scales[:, None]
    if fc_norm is not None:
        three = F.rms_norm(three, (three.shape[-1],), None, eps) * fc_norm
    return F.linear(three.flatten(1).to(fc.dtype), fc)


def embed(embedded: Tensor, embed_norm: Tensor, of_embedding: Tensor, eps: float) -> Tensor:
    """The embeddings' share [N, P] of queries, keys and values."""
    return F.linear(F.rms_norm(embedded, (embedded.shape[-1],), embed_norm, eps), of_embedding)


def project(
    state: Tensor,
    hidden_norm: Tensor,
    of_state: Tensor,
    embedded: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    magnitude: float,
    eps: float,
    heads: tuple[int, int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [N, Q, D] and keys [N, K, D], and values [N, K, D]."""
    num_heads, num_kv_heads, head_dim = heads
    qkv = F.linear(F.rms_norm(state, (state.shape[-1],), hidden_norm, eps), of_state) + embedded
    rotated, values = qkv.unflatten(-1, (-1, head_dim)).split([num_heads + num_kv_heads, num_kv_heads], dim=1)
    angles = positions[:, None].float() * frequencies
    cos, sin = (magnitude * angles.cos())[:, None], (magnitude * angles.sin())[:, None]
    first, second = rotated.float().chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(qkv.dtype)
    queries, keys = rotated.split([num_heads, num_kv_heads], dim=1)
    return queries, keys, values


def finish(
    state: Tensor, mixed: Tensor, out: Tensor, post_norm: Tensor, gate_up: Tensor, down: Tensor, norm: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The layer's output [N, H] before and after the final norm."""
    size = (state.shape[-1],)
    hidden = state + F.linear(mixed.flatten(1), out)
    gate, up = F.linear(F.rms_norm(hidden, size, post_norm, eps), gate_up).chunk(2, dim=-1)
    hidden = hidden + F.linear(F.silu(gate) * up, down)
    return hidden, F.rms_norm(hidden, size, norm, eps)


def plain_attend(batch: TrainingBatch) -> Attend:
    return attend_samples(batch.starts.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """`notes` say what was asked for and could not be had."""

    combine: Stage = combine
    embed: Stage = embed
    project: Stage = project
    merge: Stage = merge_own_steps
    finish: Stage = finish
    softmax: SoftmaxPass = softmax_pass
    attend: Callable[[TrainingBatch], Attend] = plain_attend
    compiled: bool = False
    notes: tuple[str, ...] = ()
