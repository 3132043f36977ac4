"""The target's forward pass for serving: packed rows of many sequences, weights read once, keys and values in place.

Tested against `drafter/reference/`, which computes the same with none of this. Shapes: R rows, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.serving.kernels import Matmul, rms_norm
from breakeven.drafter.serving.layers import Attention, KVCache, Rotary, Span

__all__ = ["Target"]


class _Layer:
    __slots__ = ("down", "gate_up", "input_norm", "out", "post_norm", "qkv")

    def __init__(self, input_norm: Tensor, qkv: Tensor, out: Tensor, post_norm: Tensor, gate_up: Tensor, down: Tensor) -> None:
        self.input_norm, self.post_norm = input_norm, post_norm
        self.qkv, self.out, self.gate_up, self.down = Matmul(qkv), Matmul(out), Matmul(gate_up), Matmul(down)


class Target:
    """`forward` returns hidden states; `logits` turns the rows that need it into logits."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, cache: KVCache, rotary: Rotary) -> None:
        self.config = config
        self.cache = cache
        self.embed = weights.embed
        self._rotary = rotary
        self._layers = [
            _Layer(layer.input_norm, layer.qkv, layer.out, layer.post_norm, layer.gate_up, layer.down) for layer in weights.layers
        ]
        self._norm = weights.norm
        self._head = Matmul(weights.head)

    def forward(
        self, token_ids: Tensor, spans: Sequence[Span], auxiliary_layers: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run `token_ids` [R] of the packed spans.

        Returns the residual stream after the last layer [R, H], and, if asked for, the streams entering `auxiliary_layers` side by
        side [R, 3H].
        """
        config = self.config
        num_rotated = config.num_heads + config.num_kv_heads
        attend = Attention(spans, self.cache, config.num_heads)
        tables = self._rotary.tables(attend.positions)
        hidden = self.embed[token_ids]
        auxiliary: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            if index in auxiliary_layers:
                auxiliary[index] = hidden
            qkv = layer.qkv(rms_norm(hidden, layer.input_norm, config.rms_norm_eps)).view(len(hidden), -1, config.head_dim)
            # queries and keys lie side by side, so one rotation serves both
            Rotary.rotate_(qkv[:, :num_rotated], tables)
            hidden = hidden + layer.out(attend(index, qkv))
            gate, up = layer.gate_up(rms_norm(hidden, layer.post_norm, config.rms_norm_eps)).chunk(2, dim=-1)
            hidden = hidden + layer.down(F.silu(gate) * up)
        if not auxiliary_layers:
            return hidden, None
        return hidden, torch.cat([auxiliary[layer] for layer in auxiliary_layers], dim=-1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: [R, H] -> [R, V]."""
        return self._head(rms_norm(hidden, self._norm, self.config.rms_norm_eps))
