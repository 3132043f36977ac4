"""Drafters: who proposes the next tokens of every running sequence.

A drafter sees each sequence's tokens and, if it asks for auxiliary layers, the target's states of the rows just computed. It
answers with up to k tokens a sequence; none is a fine answer and costs nothing.

Shapes: R rows, H hidden, W draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.serving.kernels import Matmul, rms_norm
from breakeven.drafter.serving.layers import Attention, KVCache, Rotary, Span

__all__ = ["Drafter", "Eagle3Drafter", "NgramDrafter"]


class Drafter(Protocol):
    auxiliary_layers: tuple[int, ...]

    def start(self, slot: int) -> None:
        """A new sequence takes `slot`: forget what was there."""
        ...

    def propose(
        self, histories: Sequence[Sequence[int]], spans: Sequence[Span], states: Tensor | None, num_drafts: int
    ) -> list[list[int]]:
        """Up to `num_drafts` drafts for each sequence; with 0 only what drafting later needs is kept up.

        `histories` are all tokens so far, the newest not yet run by the target. `spans` are the rows the target has just run and
        that still stand (accepted ones only), `states` their packed auxiliary states [R, 3H].
        """
        ...


class NgramDrafter:
    """Prompt lookup: propose what followed the last occurrence of the latest n tokens, longest n first.

    The index is kept up to date token by token, so a lookup costs a few dictionary reads however long the sequence is.
    """

    auxiliary_layers: tuple[int, ...] = ()

    def __init__(self, num_slots: int, shortest: int, longest: int) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._indexes: list[dict[tuple[int, ...], int]] = [{} for _ in range(num_slots)]
        self._indexed = [0] * num_slots

    def start(self, slot: int) -> None:
        self._indexes[slot] = {}
        self._indexed[slot] = 0

    def propose(
        self, histories: Sequence[Sequence[int]], spans: Sequence[Span], states: Tensor | None, num_drafts: int
    ) -> list[list[int]]:
        return [self._lookup(span.slot, history, num_drafts) for history, span in zip(histories, spans, strict=True)]

    def _lookup(self, slot: int, history: Sequence[int], limit: int) -> list[int]:
        index = self._indexes[slot]
        # an n-gram that ends at the last token has no continuation yet, so it is indexed only once a token follows it
        for end in range(max(self._indexed[slot], 1), len(history)):
            for size in self._sizes:
                if size <= end:
                    index[tuple(history[end - size : end])] = end
        self._indexed[slot] = len(history)
        for size in self._sizes:
            if size < len(history):
                found = index.get(tuple(history[-size:]))
                if found is not None:
                    return list(history[found : found + limit])
        return []


class Eagle3Drafter:
    """Chain drafting with an EAGLE-3 head, all sequences batched.

    A round's first pass takes the rows the target has just settled: true states, true tokens; the drafter's cache holds only
    such rows. The following k - 1 passes feed its own output back, one row a sequence; what they write is overwritten by the
    next round's true rows.
    """

    def __init__(self, config: Eagle3Config, weights: Eagle3Weights, target_embed: Tensor, cache: KVCache, rotary: Rotary) -> None:
        self.auxiliary_layers: tuple[int, ...] = config.auxiliary_layers
        self._shape = config.shape
        self._norm_output = config.norm_output
        self._norm_before_residual = config.norm_before_residual
        self._cache = cache
        self._rotary = rotary
        self._embed = weights.embed if weights.embed is not None else target_embed
        self._embed_norm, self._hidden_norm = weights.embed_norm, weights.hidden_norm
        self._post_norm, self._norm = weights.post_norm, weights.norm
        self._fc_norm, self._input_norm = weights.fc_norm, weights.input_norm
        self._fc, self._qkv, self._out = Matmul(weights.fc), Matmul(weights.qkv), Matmul(weights.out)
        self._gate_up, self._down, self._head = Matmul(weights.gate_up), Matmul(weights.down), Matmul(weights.head)
        self._target_ids = weights.target_ids

    def start(self, slot: int) -> None:
        """Nothing to forget: positions are written before they are read."""

    def propose(
        self, histories: Sequence[Sequence[int]], spans: Sequence[Span], states: Tensor | None, num_drafts: int
    ) -> list[list[int]]:
        assert states is not None
        # the row at position t pairs the target's state there with the token that follows
        following = [
            token
            for history, span in zip(histories, spans, strict=True)
            for token in history[span.start + 1 : span.start + span.count + 1]
        ]
        last_rows = torch.tensor([span.count for span in spans]).cumsum(0) - 1
        if num_drafts == 0:
            # its cache has to hold these positions if it is to draft again when fewer requests run
            self._layer(self._combine(states), torch.tensor(following), spans)
            return [[] for _ in spans]
        hidden, tokens = self._choose(self._layer(self._combine(states), torch.tensor(following), spans, last_rows))
        drafts = [tokens]
        ends = [span.start + span.count for span in spans]
        for step in range(num_drafts - 1):
            hidden = self._layer(hidden, tokens, [Span(span.slot, end + step, 1) for span, end in zip(spans, ends, strict=True)])
            hidden, tokens = self._choose(hidden)
            drafts.append(tokens)
        proposals: list[list[int]] = torch.stack(drafts, dim=1).tolist()
        return proposals

    def _combine(self, states: Tensor) -> Tensor:
        if self._input_norm is not None:
            states = rms_norm(states, self._input_norm, self._shape.rms_norm_eps)
        if self._fc_norm is not None:
            three = zip(states.chunk(3, dim=-1), self._fc_norm, strict=True)
            states = torch.cat([rms_norm(state, weight, self._shape.rms_norm_eps) for state, weight in three], dim=-1)
        return self._fc(states)

    def _choose(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The state to feed back [R, H], and the tokens chosen [R]."""
        normed = rms_norm(hidden, self._norm, self._shape.rms_norm_eps)
        return normed if self._norm_output else hidden, self._target_ids[self._head(normed).argmax(-1)]

    def _layer(self, states: Tensor, token_ids: Tensor, spans: Sequence[Span], wanted: Tensor | None = None) -> Tensor:
        """One pass of the head's layer over packed rows; returns the pre-norm output [R, H], of the rows `wanted` only if given.

        The other rows leave their keys and values in the cache, which is all that anybody will ask of them.
        """
        shape, eps = self._shape, self._shape.rms_norm_eps
        attend = Attention(spans, self._cache, shape.num_heads)
        embedded = rms_norm(self._embed[token_ids], self._embed_norm, eps)
        beside = rms_norm(states, self._hidden_norm, eps)
        qkv = self._qkv(torch.cat([embedded, beside], dim=-1)).view(len(states), -1, shape.head_dim)
        Rotary.rotate_(qkv[:, : shape.num_heads + shape.num_kv_heads], self._rotary.tables(attend.positions))
        hidden, mixed = beside if self._norm_before_residual else states, attend(0, qkv)
        if wanted is not None:
            hidden, mixed = hidden[wanted], mixed[wanted]
        hidden = hidden + self._out(mixed)
        gate, up = self._gate_up(rms_norm(hidden, self._post_norm, eps)).chunk(2, dim=-1)
        return hidden + self._down(F.silu(gate) * up)
