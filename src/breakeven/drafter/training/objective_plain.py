"""The training-time test of EAGLE-3 (arXiv 2503.01840, section 3.2), plainly: one document, every score written out.

Row t stands for the drafting that starts when the target has settled token t. At step k (0 is the first draft) it sees the token
x_(t+1+k), the true one, and the state that its own previous step left; the first step's state comes from the target. It guesses
x_(t+2+k), and is held against what the target says after token t+1+k. It attends to the first step's keys of all rows up to t,
which are what the drafter's cache holds when drafting starts, and to the keys of its own steps since: the same states that drafting
computes one token at a time, for every start t at once.

A position counts where the token to be guessed was written by the target (`loss_mask`). Where that token lies outside the draft
vocabulary the head cannot win: no loss, and wrong in accuracy. The token that the target wrote decides, in place of the arg max of
its whole vocabulary: the two are the same wherever the answer is greedy, and the whole vocabulary's logits are never needed.

This is the oracle of `objective_fast`. Shapes: T tokens, R rows, H hidden, N query heads, K key/value heads, D head dimension, V
target vocabulary, W draft vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.reference.eagle3 import combine
from breakeven.drafter.reference.llama import norm, rotate

__all__ = ["Step", "plain_loss", "training_time_test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One document at one step. `state` is what is fed back; the others have one row less with every step."""

    state: Tensor  # [R, H]
    loss: Tensor  # [R] soft cross entropy
    correct: Tensor  # [R] bool
    trained: Tensor  # [R] bool, rows with a loss
    counted: Tensor  # [R] bool, rows that accuracy counts


def training_time_test(
    token_ids: Tensor,
    loss_mask: Tensor,
    auxiliary: Tensor,
    last: Tensor,
    num_steps: int,
    config: Eagle3Config,
    weights: Eagle3Weights,
    target_embed: Tensor,
    target_head: Tensor,
) -> list[Step]:
    """All steps of one document.

    token_ids, loss_mask: [T]; auxiliary: [T, 3H]; last: [T, H]; target_embed: [V, H]; target_head: [W, H], the rows of the draft
    vocabulary.
    """
    shape, eps = config.shape, config.shape.rms_norm_eps
    embed = target_embed if weights.embed is None else weights.embed
    in_vocabulary = torch.isin(token_ids, weights.target_ids)
    state = combine(auxiliary, config, weights)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    steps: list[Step] = []
    for step in range(num_steps):
        rows = len(token_ids) - 2 - step  # those for which the token to be guessed exists
        if rows <= 0:
            break
        state = state[:rows]
        embedded = embed[token_ids[1 + step :][:rows]].to(state.dtype)
        both = torch.cat([norm(embedded, weights.embed_norm, eps), norm(state, weights.hidden_norm, eps)], dim=-1)
        qkv = (both @ weights.qkv.T).view(rows, -1, shape.head_dim)
        query, key, value = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        positions = torch.arange(rows) + step
        query = rotate(query, positions, shape)
        group = shape.num_heads // shape.num_kv_heads
        keys.append(rotate(key, positions, shape).repeat_interleave(group, dim=1))
        values.append(value.repeat_interleave(group, dim=1))

        # [R, N, R] against the first step's keys up to the row, then [R, N, 1] against each own key since
        future = torch.ones(rows, rows, dtype=torch.bool).triu(1)[:, None]
        scores = [torch.einsum("qnd,knd->qnk", query, keys[0][:rows]).masked_fill(future, -torch.inf)]
        scores += [(query * own[:rows]).sum(-1, keepdim=True) for own in keys[1:]]
        chances = (torch.cat(scores, dim=-1) / math.sqrt(shape.head_dim)).softmax(-1)
        mixed = torch.einsum("qnk,knd->qnd", chances[..., :rows], values[0][:rows])
        for index, own in enumerate(values[1:]):
            mixed = mixed + chances[..., rows + index, None] * own[:rows]

        hidden = state + mixed.flatten(1) @ weights.out.T
        gate, up = (norm(hidden, weights.post_norm, eps) @ weights.gate_up.T).chunk(2, dim=-1)
        hidden = hidden + (torch.nn.functional.silu(gate) * up) @ weights.down.T
        normed = norm(hidden, weights.norm, eps)
        logits = normed @ weights.head.T

        # what the target says after token t + 1 + step, over the draft vocabulary only: softmax renormalises
        teacher = (last[1 + step :][:rows] @ target_head.T).softmax(-1)
        counted = loss_mask[2 + step :][:rows]
        trained = counted & in_vocabulary[2 + step :][:rows]
        state = normed if config.norm_output else hidden
        steps.append(
            Step(
                state=state,
                loss=-(teacher * logits.log_softmax(-1)).sum(-1),
                correct=(logits.argmax(-1) == teacher.argmax(-1)) & trained,
                trained=trained,
                counted=counted,
            )
        )
    return steps


def plain_loss(
    packed: PackedStates,
    step_weights: Sequence[float],
    config: Eagle3Config,
    weights: Eagle3Weights,
    target_embed: Tensor,
    target_head: Tensor,
) -> Tensor:
    """Weighted sum over steps of the mean loss over the step's trained rows; a step without any adds nothing."""
    documents = [
        training_time_test(
            packed.token_ids[start:end],
            packed.loss_mask[start:end],
            packed.auxiliary[start:end],
            packed.last[start:end],
            len(step_weights),
            config,
            weights,
            target_embed,
            target_head,
        )
        for start, end in zip(packed.starts[:-1].tolist(), packed.starts[1:].tolist(), strict=True)
    ]
    total = weights.head.new_zeros(())
    for index, step_weight in enumerate(step_weights):
        at_step = [steps[index] for steps in documents if len(steps) > index]
        losses = [step.loss[step.trained] for step in at_step]
        num_trained = sum(len(loss) for loss in losses)
        if num_trained:
            total = total + step_weight * torch.cat(losses).sum() / num_trained
    return total
