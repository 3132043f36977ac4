"""The parts that target and drafter share: rotary positions, the key/value cache, and attention over ragged rows.

A forward pass works on **rows**: all new tokens of all sequences, packed one after another. A `Span` says which rows belong to
which cache slot and at which positions they stand, so prompts, verified drafts and single tokens go through the same code, and
weights are read once for all of them.

Shapes: R rows, N query heads, K key/value heads, G = N / K, D head dimension, T rows of one span, L cached positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.llama import LlamaConfig, inverse_frequencies

__all__ = ["KVCache", "Rotary", "Span", "attend", "causal_masks", "positions_of"]

# Above this many rows a span is a prompt: repeating queries over a group would then cost more than it saves.
GROUPED_ROWS = 16


@dataclass(frozen=True, slots=True)
class Span:
    """`count` new tokens of the sequence in `slot`, at positions `start` to `start + count - 1`."""

    slot: int
    start: int
    count: int


def positions_of(spans: Sequence[Span]) -> Tensor:
    """Positions [R] of the packed rows of `spans`."""
    if all(span.count == 1 for span in spans):
        return torch.tensor([span.start for span in spans])
    return torch.cat([torch.arange(span.start, span.start + span.count) for span in spans])


class Rotary:
    """Rotary position embedding (half-rotation layout), tables computed once in float32."""

    def __init__(self, config: LlamaConfig, num_positions: int, dtype: torch.dtype) -> None:
        frequencies = inverse_frequencies(config.rope_scaling, config.head_dim, config.rope_theta)
        angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
        self._cos = torch.cat([angles.cos()] * 2, dim=-1).to(dtype)[:, None, :]
        # The sign of the rotated half is folded in here, so applying needs no negation.
        self._sin = torch.cat([-angles.sin(), angles.sin()], dim=-1).to(dtype)[:, None, :]

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [R, 1, D] for one forward pass; every layer uses the same."""
        return self._cos[positions], self._sin[positions]

    @staticmethod
    def apply(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate `x` [R, heads, D]."""
        half = x.shape[-1] // 2
        return torch.addcmul(x * tables[0], x.roll(half, dims=-1), tables[1])


class KVCache:
    """Keys and values of every layer, preallocated [slots, K, positions, D]; written in place, never moved."""

    def __init__(self, config: LlamaConfig, num_slots: int, num_positions: int, dtype: torch.dtype) -> None:
        shape = (num_slots, config.num_kv_heads, num_positions, config.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]

    def write(self, layer: int, spans: Sequence[Span], keys: Tensor, values: Tensor) -> None:
        """Store packed `keys` and `values` [R, K, D] of the spans."""
        first = 0
        for span in spans:
            end, last = span.start + span.count, first + span.count
            self.keys[layer][span.slot, :, span.start : end] = keys[first:last].transpose(0, 1)
            self.values[layer][span.slot, :, span.start : end] = values[first:last].transpose(0, 1)
            first = last


def attend(cache: KVCache, layer: int, spans: Sequence[Span], queries: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
    """Causal attention of packed `queries` [R, N, D] over each span's cached positions; returns [R, N * D].

    Within a group all query heads share their keys, so a few rows of a group are stacked as if they were more rows: one small
    product instead of G of them, and keys are read once.
    """
    _, num_heads, head_dim = queries.shape
    num_kv = cache.keys[layer].shape[1]
    group = num_heads // num_kv
    outputs = []
    first = 0
    for span, mask in zip(spans, masks, strict=True):
        end = span.start + span.count
        keys = cache.keys[layer][span.slot, :, :end].unsqueeze(0)
        values = cache.values[layer][span.slot, :, :end].unsqueeze(0)
        rows = queries[first : first + span.count]
        first += span.count
        if span.count > GROUPED_ROWS:
            heads = rows.transpose(0, 1).unsqueeze(0)
            mixed = F.scaled_dot_product_attention(
                heads, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=group > 1
            )
            outputs.append(mixed[0].transpose(0, 1).reshape(span.count, num_heads * head_dim))
            continue
        stacked = (
            rows.view(span.count, num_kv, group, head_dim).permute(1, 2, 0, 3).reshape(1, num_kv, group * span.count, head_dim)
        )
        mixed = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask)
        mixed = mixed.view(num_kv, group, span.count, head_dim).permute(2, 0, 1, 3)
        outputs.append(mixed.reshape(span.count, num_heads * head_dim))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def causal_masks(spans: Sequence[Span], group: int) -> list[Tensor | None]:
    """One mask a span, in the form `attend` uses it: None where every cached position may be seen (or plain causal)."""
    masks: list[Tensor | None] = []
    for span in spans:
        if span.count == 1 or (span.count > GROUPED_ROWS and span.start == 0):
            masks.append(None)
            continue
        rows = torch.arange(span.start, span.start + span.count)
        mask = torch.arange(span.start + span.count) <= rows[:, None]
        masks.append(mask if span.count > GROUPED_ROWS else mask.repeat(group, 1))
    return masks
