"""Chain drafting at every position of many answers at once: what `drafter/reference` does round by round, without its rounds.

A round that starts after row t (the newest row the target has settled) drafts from the settled rows 0..t and nothing else, so the
drafts of all possible rounds are independent of each other and are computed together: one causal pass of the head over the whole
sequence, then k - 1 passes in which each row goes on with its own guess and sees the first pass's keys up to t beside its own.

Shapes: S sequences, L their padded length less one, H hidden, R rows that are drafted from, N query heads, K key/value heads, D
head dimension, k drafts. Padding lies at the end, where causal attention never looks back from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.layer_functions import rms_norm
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.model.rope import inverse_frequencies, rope_magnitude

__all__ = ["draft_everywhere"]

# Attention scores, or logits, that are held at once: a quarter of a gigabyte in float32.
MAX_ELEMENTS = 1 << 26


def draft_everywhere(
    token_ids: Tensor,
    auxiliary: Tensor,
    first_row: int,
    num_draft_tokens: int,
    config: Eagle3Config,
    weights: Eagle3Weights,
    target_embed: Tensor,
) -> Tensor:
    """Drafts [S, R, k] from the rows `first_row` to L - 1; those of row t are guesses for the tokens t + 2, t + 3, ...

    token_ids: [S, L + 1]; auxiliary: [S, L, 3H], the target's states at all tokens but the last; both padded at the end.
    Computed in the type of `weights`; everything lies on one device.
    """
    shape = config.shape
    rows = token_ids.shape[1] - 1 - first_row
    at_once = max(1, MAX_ELEMENTS // (shape.num_heads * rows * token_ids.shape[1]))
    parts = [
        _Pass(config, weights, target_embed).chain(ids, states, first_row, num_draft_tokens)
        for ids, states in zip(token_ids.split(at_once), auxiliary.split(at_once), strict=True)
    ]
    return torch.cat(parts)


class _Pass:
    def __init__(self, config: Eagle3Config, weights: Eagle3Weights, target_embed: Tensor) -> None:
        self.weights = weights
        self.config = config
        self.shape = config.shape
        self.embed = target_embed if weights.embed is None else weights.embed

    def chain(self, token_ids: Tensor, auxiliary: Tensor, first_row: int, num_draft_tokens: int) -> Tensor:
        length = token_ids.shape[1] - 1
        positions = torch.arange(length, device=token_ids.device)
        states = self._combine(auxiliary)
        queries, settled_keys, settled_values = self._project(states, token_ids[:, 1:], positions)
        mixed = F.scaled_dot_product_attention(queries, settled_keys, settled_values, is_causal=True, enable_gqa=True)
        hidden = self._finish(states, mixed)[:, first_row:]
        hidden, tokens = self._choose(hidden)
        drafts = [tokens]
        rows = positions[first_row:]
        unseen = positions[None, :] > rows[:, None]
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        for step in range(1, num_draft_tokens):
            queries, keys, values = self._project(hidden, drafts[-1], rows + step)
            own_keys.append(keys)
            own_values.append(values)
            mixed = _attend(queries, settled_keys, settled_values, unseen, own_keys, own_values)
            hidden, tokens = self._choose(self._finish(hidden, mixed))
            drafts.append(tokens)
        return torch.stack(drafts, dim=-1)

    def _combine(self, auxiliary: Tensor) -> Tensor:
        weights, auxiliary = self.weights, auxiliary.to(self.weights.fc.dtype)
        if weights.input_norm is not None:
            auxiliary = rms_norm(auxiliary, weights.input_norm, self.shape.rms_norm_eps)
        if weights.fc_norm is not None:
            three = zip(auxiliary.chunk(3, dim=-1), weights.fc_norm, strict=True)
            auxiliary = torch.cat([rms_norm(state, weight, self.shape.rms_norm_eps) for state, weight in three], dim=-1)
        return auxiliary @ weights.fc.T

    def _project(self, states: Tensor, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [S, N, T, D] and keys [S, K, T, D], and values, of T rows."""
        shape, weights, eps = self.shape, self.weights, self.shape.rms_norm_eps
        embedded = rms_norm(self.embed[token_ids].to(states.dtype), weights.embed_norm, eps)
        both = torch.cat([embedded, rms_norm(states, weights.hidden_norm, eps)], dim=-1)
        heads = (both @ weights.qkv.T).unflatten(-1, (-1, shape.head_dim)).transpose(1, 2)
        queries, keys, values = heads.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        cos, sin = _rotation(shape, positions, heads.dtype)
        return _rotate(queries, cos, sin), _rotate(keys, cos, sin), values

    def _finish(self, states: Tensor, mixed: Tensor) -> Tensor:
        """From attention's outcome [S, N, T, D] to the layer's pre-norm output [S, T, H]."""
        weights, eps = self.weights, self.shape.rms_norm_eps
        start = rms_norm(states, weights.hidden_norm, eps) if self.config.norm_before_residual else states
        hidden = start[:, -mixed.shape[2] :] + mixed.transpose(1, 2).flatten(2) @ weights.out.T
        gate, up = (rms_norm(hidden, weights.post_norm, eps) @ weights.gate_up.T).chunk(2, dim=-1)
        return hidden + (F.silu(gate) * up) @ weights.down.T

    def _choose(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The state to feed back [S, R, H], and target ids [S, R] of the head's best guesses; logits are held a slice at a time."""
        weights = self.weights
        normed = rms_norm(hidden, weights.norm, self.shape.rms_norm_eps)
        best = torch.cat([(part @ weights.head.T).argmax(-1) for part in _slices(normed.flatten(0, 1), len(weights.head))])
        return normed if self.config.norm_output else hidden, weights.target_ids[best].unflatten(0, hidden.shape[:2])


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, unseen: Tensor, own_keys: list[Tensor], own_values: list[Tensor]
) -> Tensor:
    """Queries [S, N, R, D] against the settled keys [S, K, L, D] not `unseen` [R, L], and each row against its own [S, K, R, D]."""
    S, N, R, D = queries.shape
    K = keys.shape[1]
    grouped = queries.view(S, K, N // K, R, D)
    settled = (grouped.flatten(2, 3) @ keys.transpose(2, 3)).view(S, K, N // K, R, -1).masked_fill(unseen, -torch.inf)
    own = torch.stack([(grouped * key[:, :, None]).sum(-1) for key in own_keys], dim=-1)
    chances = (torch.cat([settled, own], dim=-1).float() / math.sqrt(D)).softmax(-1).to(queries.dtype)
    settled, own = chances.split([keys.shape[2], len(own_keys)], dim=-1)
    mixed: Tensor = (settled.flatten(2, 3) @ values).view(S, K, N // K, R, D)
    for index, value in enumerate(own_values):
        mixed = mixed + own[..., index, None] * value[:, :, None]
    return mixed.reshape(S, N, R, D)


def _rotation(shape: LlamaConfig, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    frequencies = inverse_frequencies(shape.rope_scaling, shape.head_dim, shape.rope_theta).to(positions.device)
    angles = positions[:, None].float() * frequencies
    magnitude = rope_magnitude(shape.rope_scaling)
    return (magnitude * angles.cos()).to(dtype), (magnitude * angles.sin()).to(dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _slices(rows: Tensor, width: int) -> Iterator[Tensor]:
    yield from rows.split(max(1, MAX_ELEMENTS // width))
