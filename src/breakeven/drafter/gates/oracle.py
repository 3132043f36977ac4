"""What one row's training loss must be, from the plain decoder's parts, and what it would be under each known fault.

A start t drafts as serving does: the settled states 0..t, then the head's own state after every step, each beside the token that
follows. Training feeds the true tokens, so step k guesses x_(t+2+k) and is held against what the target says after x_(t+1+k). One
start is computed at a time with no batching and no mask but the causal one.

Shapes: T tokens, H hidden, V target vocabulary, W draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.reference.eagle3 import combine
from breakeven.drafter.reference.llama import causal_attention, norm, rotate

__all__ = ["Hypothesis", "Judged", "judge_row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A way in which an objective may be wrong. The default is none."""

    positions_advance: bool = True
    hidden_norm: bool = True
    states_order: tuple[int, int, int] = (0, 1, 2)
    vocabulary: str = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    loss: float
    correct: bool


def judge_row(
    start: int,
    step: int,
    token_ids: Tensor,
    auxiliary: Tensor,
    logits: Tensor,
    config: Eagle3Config,
    weights: Eagle3Weights,
    target_embed: Tensor,
    hypothesis: Hypothesis = Hypothesis(),
) -> Judged:
    """Loss and rightness of step `step` of the drafting that starts at row `start`.

    token_ids: [T]; auxiliary: [T, 3H]; logits: [T, V], the target's.
    """
    if hypothesis.states_order != (0, 1, 2):
        thirds = auxiliary.chunk(3, dim=-1)
        auxiliary = torch.cat([thirds[index] for index in hypothesis.states_order], dim=-1)
    embed = target_embed if weights.embed is None else weights.embed
    states = combine(auxiliary[: start + 1], config, weights)
    for done in range(step + 1):
        positions = torch.arange(start + 1 + done)
        if not hypothesis.positions_advance:
            positions = positions.clamp(max=start)
        hidden = _layer(states, embed[token_ids[1 : start + 2 + done]], positions, config, weights, hypothesis)[-1]
        normed = norm(hidden, weights.norm, config.shape.rms_norm_eps)
        states = torch.cat([states, (normed if config.norm_output else hidden)[None]])
    rows = _vocabulary_rows(weights.target_ids, config.shape.vocab_size, hypothesis.vocabulary)
    teacher = logits[start + 1 + step, rows].softmax(-1)
    guesses = (normed @ weights.head.T).log_softmax(-1)
    return Judged(loss=float(-(teacher * guesses).sum()), correct=bool(guesses.argmax() == teacher.argmax()))


def _vocabulary_rows(target_ids: Tensor, vocab_size: int, reading: str) -> Tensor:
    """Rows of the target's head that the draft vocabulary is taken for."""
    draft_ids = torch.arange(len(target_ids))
    if reading == "ids taken for offsets":
        return (target_ids + draft_ids) % vocab_size
    if reading == "offsets taken for ids":
        return target_ids - draft_ids
    return target_ids


def _layer(
    states: Tensor, embedded: Tensor, positions: Tensor, config: Eagle3Config, weights: Eagle3Weights, hypothesis: Hypothesis
) -> Tensor:
    shape, eps = config.shape, config.shape.rms_norm_eps
    beside = norm(states, weights.hidden_norm, eps) if hypothesis.hidden_norm else states
    qkv = (torch.cat([norm(embedded, weights.embed_norm, eps), beside], dim=-1) @ weights.qkv.T).view(
        len(states), -1, shape.head_dim
    )
    queries, keys, values = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    mixed = causal_attention(rotate(queries, positions, shape), rotate(keys, positions, shape), values)
    hidden = (beside if config.norm_before_residual else states) + mixed @ weights.out.T
    gate, up = (norm(hidden, weights.post_norm, eps) @ weights.gate_up.T).chunk(2, dim=-1)
    return hidden + (torch.nn.functional.silu(gate) * up) @ weights.down.T


# In the order of the field's reports: each is what the trainer computes if its name is true, and the stage that it sits in.
KNOWN_FAULTS: tuple[tuple[str, str, Hypothesis], ...] = (
    ("positions do not advance with the step", "model", Hypothesis(positions_advance=False)),
    ("hidden_norm is not applied", "model", Hypothesis(hidden_norm=False)),
    ("the low and the high state are swapped", "model", Hypothesis(states_order=(2, 1, 0))),
    ("target ids are taken for offsets (absolute d2t)", "objective", Hypothesis(vocabulary="ids taken for offsets")),
    ("offsets are taken for target ids (absolute d2t)", "objective", Hypothesis(vocabulary="offsets taken for ids")),
)


def without_weight(weights: Eagle3Weights, name: str) -> Eagle3Weights:
    """The head with a norm's weight at one, as if it had never been loaded."""
    return replace(weights, **{name: torch.ones_like(getattr(weights, name))})
