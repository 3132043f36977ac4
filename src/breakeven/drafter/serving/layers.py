"""The parts that target and drafter share: rotary positions, the key/value cache, and attention over ragged rows.

A forward pass works on **rows**: all new tokens of all sequences, packed one after another. A `Span` says which rows belong to
which cache slot and at which positions they stand, so prompts, verified drafts and single tokens go through the same code, and
weights are read once for all of them.

Shapes: R rows, N query heads, K key/value heads, G = N / K, D head dimension, S slots, T rows of a span, P positions a slot holds,
L positions that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.layer_functions import rotary_tables
from breakeven.drafter.model.llama import LlamaConfig

__all__ = ["Attention", "KVCache", "Rotary", "Span"]

# Spans of more rows are prompts, attended one by one: padding all spans to the longest would cost more than one call saves.
BATCHED_ROWS = 16


@dataclass(frozen=True, slots=True)
class Span:
    """`count` new tokens of the sequence in `slot`, at positions `start` to `start + count - 1`."""

    slot: int
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class Rotary:
    """Rotary position embedding (half-rotation layout), tables computed once in float32."""

    def __init__(self, config: LlamaConfig, num_positions: int, dtype: torch.dtype) -> None:
        self._cos, self._sin = rotary_tables(config, torch.arange(num_positions), dtype)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [R, 1, D] for one forward pass; every layer uses the same."""
        return self._cos[positions], self._sin[positions]

    @staticmethod
    def rotate_(x: Tensor, tables: tuple[Tensor, Tensor]) -> None:
        """Rotate `x` [R, heads, D] in place."""
        torch.addcmul(x * tables[0], x.roll(x.shape[-1] // 2, dims=-1), tables[1], out=x)


class KVCache:
    """Keys and values of every layer, preallocated and written in place, never moved.

    One row of a layer is one position of one slot, keys beside values, [S * P, 2K, D]: the tail of a fused query-key-value row as
    it comes out of the product, so that a forward pass stores all its rows with one copy a layer.
    """

    def __init__(self, config: LlamaConfig, num_slots: int, num_positions: int, dtype: torch.dtype) -> None:
        shape = (num_slots * num_positions, 2 * config.num_kv_heads, config.head_dim)
        self.num_slots, self.num_positions, self.num_kv_heads = num_slots, num_positions, config.num_kv_heads
        self.layers = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]

    def read(self, layer: int, first_slot: int, num_slots: int, length: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values [S, K, L, D] of consecutive slots."""
        whole = self.layers[layer].view(self.num_slots, self.num_positions, 2 * self.num_kv_heads, -1)
        part = whole[first_slot : first_slot + num_slots, :length].transpose(1, 2)
        return part[:, : self.num_kv_heads], part[:, self.num_kv_heads :]


class Attention:
    """Causal attention of one forward pass's rows: what depends on the spans is worked out once, for all layers.

    Within a group all query heads share their keys, so the rows of a group are stacked as if they were more rows of one head. Few
    rows a span (decoding) are attended in one call over the consecutive slots that are in use, prompts one by one.
    """

    def __init__(self, spans: Sequence[Span], cache: KVCache, num_heads: int) -> None:
        self._cache = cache
        self._num_heads = num_heads
        self._group = num_heads // cache.num_kv_heads
        self._spans = spans
        self.positions = torch.tensor([position for span in spans for position in range(span.start, span.end)])
        self._cache_rows = torch.tensor(
            [span.slot * cache.num_positions + position for span in spans for position in range(span.start, span.end)]
        )
        self._num_rows = max(span.count for span in spans)
        self._batched = self._num_rows <= BATCHED_ROWS
        if self._batched:
            self._plan_batch()
        else:
            self._masks = [self._visible(torch.arange(span.start, span.end), span.end) if span.start else None for span in spans]

    def _plan_batch(self) -> None:
        spans, num_rows = self._spans, self._num_rows
        self._first_slot = min(span.slot for span in spans)
        self._num_slots = max(span.slot for span in spans) - self._first_slot + 1
        self._length = max(span.end for span in spans)
        places = [
            (span.slot - self._first_slot) * num_rows + row for span in spans for row in range(span.count)
        ]  # of each packed row in the padded batch
        num_places = self._num_slots * num_rows
        self._places = None if places == list(range(num_places)) else torch.tensor(places)
        self._mask = None
        if num_rows > 1 or any(span.end < self._length for span in spans):
            # A place without a row sees position 0, so that no softmax is over nothing.
            last_seen = torch.zeros(num_places, dtype=torch.int64)
            last_seen[places] = self.positions
            mask = self._visible(last_seen, self._length).view(self._num_slots, 1, num_rows, self._length)
            self._mask = mask.repeat(1, 1, self._group, 1)

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Store rotated keys and values of `qkv` [R, N + 2K, D], and attend its queries; returns [R, N * D]."""
        self._cache.layers[layer].index_copy_(0, self._cache_rows, qkv[:, self._num_heads :])
        queries = qkv[:, : self._num_heads]
        return self._attend_batch(layer, queries) if self._batched else self._attend_prompts(layer, queries)

    def _attend_batch(self, layer: int, queries: Tensor) -> Tensor:
        slots, rows, group, head_dim = self._num_slots, self._num_rows, self._group, queries.shape[-1]
        if self._places is not None:
            padded = queries.new_zeros(slots * rows, self._num_heads, head_dim)
            queries = padded.index_copy_(0, self._places, queries)
        stacked = queries.view(slots, rows, -1, group, head_dim).permute(0, 2, 3, 1, 4).reshape(slots, -1, group * rows, head_dim)
        keys, values = self._cache.read(layer, self._first_slot, slots, self._length)
        mixed = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=self._mask)
        mixed = mixed.view(slots, -1, group, rows, head_dim).permute(0, 3, 1, 2, 4).reshape(slots * rows, -1)
        return mixed if self._places is None else mixed[self._places]

    def _attend_prompts(self, layer: int, queries: Tensor) -> Tensor:
        outputs = []
        first = 0
        for span, mask in zip(self._spans, self._masks, strict=True):
            rows = queries[first : first + span.count].transpose(0, 1).unsqueeze(0)
            keys, values = self._cache.read(layer, span.slot, 1, span.end)
            mixed = F.scaled_dot_product_attention(
                rows, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=self._group > 1
            )
            outputs.append(mixed[0].transpose(0, 1).reshape(span.count, -1))
            first += span.count
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _visible(self, positions: Tensor, length: int) -> Tensor:
        """Additive mask [rows, length]: zero where a row at that position may look, minus infinity beyond."""
        mask = torch.zeros(len(positions), length, dtype=self._cache.layers[0].dtype)
        return mask.masked_fill_(torch.arange(length) > positions[:, None], -torch.inf)
