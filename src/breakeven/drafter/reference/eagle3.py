"""EAGLE-3 chain drafting, plainly: one sequence, no cache, every row computed anew at every step (arXiv 2503.01840).

Shapes: T settled tokens, H hidden, N query heads, K key/value heads, D head dimension, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.reference.llama import causal_attention, norm, rotate

__all__ = ["combine", "draft_chain", "eagle3_layer"]


def combine(auxiliary: Tensor, config: Eagle3Config, weights: Eagle3Weights) -> Tensor:
    """First states g [T, H] from the target's three auxiliary states side by side [T, 3H]."""
    if weights.input_norm is not None:
        auxiliary = norm(auxiliary, weights.input_norm, config.shape.rms_norm_eps)
    if weights.fc_norm is not None:
        three = zip(auxiliary.chunk(3, dim=-1), weights.fc_norm, strict=True)
        auxiliary = torch.cat([norm(state, weight, config.shape.rms_norm_eps) for state, weight in three], dim=-1)
    return auxiliary @ weights.fc.T


def eagle3_layer(states: Tensor, embedded: Tensor, config: Eagle3Config, weights: Eagle3Weights) -> Tensor:
    """Pre-norm output [T, H] for states g_t [T, H] and the embeddings of the tokens that follow, x_(t+1) [T, H].

    Row t stands at position t, the target's own position of that state.
    """
    shape, eps = config.shape, config.shape.rms_norm_eps
    positions = torch.arange(len(states))
    beside = norm(states, weights.hidden_norm, eps)
    both = torch.cat([norm(embedded, weights.embed_norm, eps), beside], dim=-1)
    qkv = (both @ weights.qkv.T).view(len(states), -1, shape.head_dim)
    queries, keys, values = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    mixed = causal_attention(rotate(queries, positions, shape), rotate(keys, positions, shape), values)
    hidden = (beside if config.norm_before_residual else states) + mixed @ weights.out.T
    gate, up = (norm(hidden, weights.post_norm, eps) @ weights.gate_up.T).chunk(2, dim=-1)
    return hidden + (torch.nn.functional.silu(gate) * up) @ weights.down.T


def draft_chain(
    token_ids: list[int],
    auxiliary: Tensor,
    num_draft_tokens: int,
    config: Eagle3Config,
    weights: Eagle3Weights,
    target_embed: Tensor,
) -> list[int]:
    """The head's greedy guesses for the tokens after `token_ids` (T + 1 of them, the newest not yet run by the target).

    `auxiliary` [T, 3H] are the target's three states side by side at the first T tokens; `target_embed` [V, H] serves a head
    without an embedding of its own.
    """
    embed = target_embed if weights.embed is None else weights.embed
    states = combine(auxiliary, config, weights)
    following = list(token_ids[1:])
    drafts: list[int] = []
    for _ in range(num_draft_tokens):
        newest = eagle3_layer(states, embed[following], config, weights)[-1]
        normed = norm(newest, weights.norm, config.shape.rms_norm_eps)
        drafts.append(int(weights.target_ids[(normed @ weights.head.T).argmax()]))
        states = torch.cat([states, (normed if config.norm_output else newest)[None]])
        following.append(drafts[-1])
    return drafts
