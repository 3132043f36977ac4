"""A Llama forward over a fixed number of packed rows, for captures that come by the thousand in one size.

Rows are padded to `num_rows`, padding being a sample of its own, so that every pass runs the same compiled kernels; attention is
one call over the whole pack. Per layer that is two calls from the host, where sample after sample it would be dozens.

Compilers fail in ways that depend on GPU and versions, so whoever takes this path compares it with the plain one first.
Shapes: N rows, H hidden, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by
from torch.nn.attention.flex_attention import flex_attention

from breakeven.drafter.capture.packing import sent
from breakeven.drafter.capture.sample_mask import BLOCK, block_mask
from breakeven.drafter.model.layer_functions import after_attention, rms_norm, rotary_tables, rotate
from breakeven.drafter.model.llama import LayerWeights, LlamaConfig, LlamaWeights

__all__ = ["PackedForward", "departure"]

# Of a row's length: two orders of rounding over many layers, against a wrong mask's 1 or more.
SAME_WITHIN_HALF, SAME_WITHIN = 0.25, 1e-3
# Made-up tokens are stranger to the target than any text, and rounding may then grow without bound in a few rows.
MAX_SHARE_BEYOND = 0.01

Heads = tuple[int, int, int]  # query heads, key/value heads, head dimension


class PackedForward:
    def __init__(self, config: LlamaConfig, weights: LlamaWeights, num_rows: int, *, compiled: bool) -> None:
        assert num_rows % BLOCK == 0, num_rows
        self.num_rows = num_rows
        self._config, self._weights = config, weights
        self._heads: Heads = (config.num_heads, config.num_kv_heads, config.head_dim)

        def stage(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=False) if compiled else function

        self._project, self._between, self._finish = stage(_project), stage(_between), stage(_finish)
        self._attend = stage(flex_attention)

    @torch.no_grad()
    def states(self, token_ids: Tensor, starts: Sequence[int], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """As `Backend.states`, for at most `num_rows` tokens."""
        config, weights, eps = self._config, self._weights, self._config.rms_norm_eps
        num_tokens, device = len(token_ids), token_ids.device
        bounds = np.asarray(starts, dtype=np.int64)
        if num_tokens < self.num_rows:
            bounds = np.append(bounds, self.num_rows)
            token_ids = F.pad(token_ids, (0, self.num_rows - num_tokens))
        positions, samples = _places(bounds, device)
        mask = block_mask(samples, bounds)
        tables = rotary_tables(config, positions, weights.embed.dtype)
        hidden = weights.embed[token_ids]
        entering: dict[int, Tensor] = {}
        heads = self._project(hidden, weights.layers[0].input_norm, weights.layers[0].qkv, tables, self._heads, eps)
        for index, layer in enumerate(weights.layers):
            if index in layers:
                entering[index] = hidden
            mixed = self._attend(*heads, block_mask=mask, enable_gqa=config.num_heads != config.num_kv_heads)
            rest = (layer.out, layer.post_norm, layer.gate_up, layer.down)
            if index + 1 < len(weights.layers):
                following: LayerWeights = weights.layers[index + 1]
                hidden, heads = self._between(hidden, mixed, *rest, following.input_norm, following.qkv, tables, self._heads, eps)
            else:
                last = self._finish(hidden, mixed, *rest, weights.norm, eps)
        return torch.cat([entering[index][:num_tokens] for index in layers], dim=-1), last[:num_tokens]


def departure(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> str | None:
    """What is wrong with states (auxiliary, last) beside those of another way to compute them; None where rounding explains it."""
    for name, mine, theirs in zip(("auxiliary states", "last states"), found, expected, strict=True):
        limit = SAME_WITHIN_HALF if mine.dtype.itemsize == 2 else SAME_WITHIN
        distance = (mine.float() - theirs.float()).norm(dim=-1) / theirs.float().norm(dim=-1).clamp(min=1e-12)
        beyond = ~(distance <= limit)
        if float(beyond.float().mean()) > MAX_SHARE_BEYOND:
            row = int(beyond.int().argmax())
            return (
                f"{name} of {int(beyond.sum())} of {len(beyond)} rows differ by more than {limit} of their length, the first, "
                f"row {row}, by {float(distance[row]):.2g}"
            )
    return None


def _places(bounds: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    lengths = np.diff(bounds)
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    return sent(positions, device), sent(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths), device)


def _project(
    hidden: Tensor, norm: Tensor, qkv: Tensor, tables: tuple[Tensor, Tensor], heads: Heads, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries, rotated keys, and values, [1, heads, N, D] each."""
    num_heads, num_kv_heads, head_dim = heads
    rows = F.linear(rms_norm(hidden, norm, eps), qkv).unflatten(-1, (-1, head_dim))
    rotated, values = rows.split([num_heads + num_kv_heads, num_kv_heads], dim=1)
    queries, keys = rotate(rotated, *tables).split([num_heads, num_kv_heads], dim=1)
    return queries.transpose(0, 1)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None]


def _between(
    hidden: Tensor,
    mixed: Tensor,
    out: Tensor,
    post_norm: Tensor,
    gate_up: Tensor,
    down: Tensor,
    norm: Tensor,
    qkv: Tensor,
    tables: tuple[Tensor, Tensor],
    heads: Heads,
    eps: float,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The rest of one layer after attention `mixed` [1, heads, N, D], and the start of the next."""
    hidden = after_attention(hidden, mixed[0].transpose(0, 1).flatten(1), out, post_norm, gate_up, down, eps)
    return hidden, _project(hidden, norm, qkv, tables, heads, eps)


def _finish(
    hidden: Tensor, mixed: Tensor, out: Tensor, post_norm: Tensor, gate_up: Tensor, down: Tensor, norm: Tensor, eps: float
) -> Tensor:
    """The rest of the last layer, and the final norm."""
    hidden = after_attention(hidden, mixed[0].transpose(0, 1).flatten(1), out, post_norm, gate_up, down, eps)
    return rms_norm(hidden, norm, eps)
