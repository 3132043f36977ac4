"""Attention of the training-time test over packed samples, without the keys of later steps ever lying in one long row.

At step k a row sees the first step's keys of its own sample up to itself, and one key of each of its own later steps. The first
part is the same block-diagonal causal attention at every step; the second is k dot products a row. Both are softmaxes, so they
merge by their log-sum-exp: K steps cost K times the first step's keys, not 1 + 2 + ... + K times.

Shapes: N rows, Q query heads, K key/value heads, G = Q / K, D head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from breakeven.drafter.capture.sample_mask import block_mask

__all__ = ["Attend", "attend_samples", "flex_attend", "merge_own_steps"]

# queries [N, Q, D], keys and values [N, K, D] -> mixed values [N, Q, D] and log-sum-exp of scaled scores [N, Q] in float32
Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def attend_samples(starts: list[int]) -> Attend:
    """Sample by sample with every score written out: for CPUs, and for GPUs where flex attention does not run."""

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        group = queries.shape[1] // keys.shape[1]
        mixed, lse = [], []
        for start, end in pairwise(starts):
            query = queries[start:end].transpose(0, 1)
            key, value = (x[start:end].repeat_interleave(group, dim=1).transpose(0, 1) for x in (keys, values))
            future = torch.ones(end - start, end - start, dtype=torch.bool, device=queries.device).triu(1)
            scores = (query @ key.transpose(1, 2)).float() / math.sqrt(queries.shape[-1])
            scores = scores.masked_fill(future, -torch.inf)
            lse.append(scores.logsumexp(-1).T)
            mixed.append((scores.softmax(-1).to(value.dtype) @ value).transpose(0, 1))
        return torch.cat(mixed), torch.cat(lse)

    return attend


def flex_attend(samples: Tensor, starts: NDArray[np.int64], compiled: Callable[..., Any] = flex_attention) -> Attend:
    """Flex attention over one packed row; `samples` [N] int32 says which sample a row belongs to, N a multiple of 128."""
    mask = block_mask(samples, starts)

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        batched = [x.transpose(0, 1)[None] for x in (queries, keys, values)]
        grouped = queries.shape[1] != keys.shape[1]
        mixed, aux = compiled(*batched, block_mask=mask, enable_gqa=grouped, return_aux=AuxRequest(lse=True))
        return mixed[0].transpose(0, 1), aux.lse[0].T

    return attend


def merge_own_steps(mixed: Tensor, lse: Tensor, queries: Tensor, own_keys: list[Tensor], own_values: list[Tensor]) -> Tensor:
    """Add each row's own later steps to its attention over the first step's keys.

    mixed: [N, Q, D] and lse: [N, Q] of the first step's keys; queries: [N, Q, D]; own_keys, own_values: [N, K, D] each.
    Returns [N, Q, D]: what one softmax over all scores would give.
    """
    grouped = queries.unflatten(1, (own_keys[0].shape[1], -1)).float()
    scale = 1.0 / math.sqrt(queries.shape[-1])
    scores = [(grouped * key[:, :, None].float()).sum(-1).flatten(1) * scale for key in own_keys]
    highest = lse
    for score in scores:
        highest = torch.maximum(highest, score)
    shares = [torch.exp(lse - highest), *(torch.exp(score - highest) for score in scores)]
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    merged = mixed.float() * (shares[0] / total)[..., None]
    for share, value in zip(shares[1:], own_values, strict=True):
        weight = (share / total).unflatten(1, (value.shape[1], -1))[..., None]
        merged = merged + (weight * value[:, :, None].float()).flatten(1, 2)
    return merged.to(mixed.dtype)
