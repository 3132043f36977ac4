"""The target's states at every token of some samples, from its weights in memory: one padded pass of a few samples at a time.

Training captures hundreds of millions of tokens (`drafter/capture`); this is for the few thousand that a drafter is judged on, and
for any float type. Shapes: S samples, T tokens of the longest, H hidden, N query heads, K key/value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.model.llama import LayerWeights, LlamaConfig, LlamaWeights, inverse_frequencies, rope_magnitude

__all__ = ["TargetStates"]

TOKENS_AT_ONCE = {"cuda": 32_768, "cpu": 2048}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStates:
    """Called with samples, yields their states packed, in order, on the device of `weights`.

    auxiliary_layers: layer inputs, low to high.
    """

    config: LlamaConfig
    weights: LlamaWeights
    auxiliary_layers: tuple[int, ...]

    @torch.inference_mode()
    def __call__(self, samples: Sequence[Sample]) -> Iterator[PackedStates]:
        limit = TOKENS_AT_ONCE.get(self.weights.embed.device.type, TOKENS_AT_ONCE["cpu"])
        batch: list[Sample] = []
        for sample in samples:
            longest = max(len(each.token_ids) for each in [*batch, sample])
            if batch and longest * (len(batch) + 1) > limit:
                yield self._packed(batch)
                batch = []
            batch.append(sample)
        if batch:
            yield self._packed(batch)

    def _packed(self, samples: Sequence[Sample]) -> PackedStates:
        device = self.weights.embed.device
        lengths = [len(sample.token_ids) for sample in samples]
        longest = max(lengths)
        padded = torch.tensor([[*sample.token_ids, *[0] * (longest - len(sample.token_ids))] for sample in samples], device=device)
        auxiliary, last = self._forward(padded)
        real = torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
        return PackedStates(
            token_ids=padded[real],
            positions=torch.arange(longest, device=device).expand_as(padded)[real],
            samples=torch.arange(len(samples), device=device, dtype=torch.int32)[:, None].expand_as(padded)[real],
            starts=torch.tensor([0, *accumulate(lengths)], device=device),
            loss_mask=torch.tensor([marked for sample in samples for marked in sample.loss_mask], device=device),
            auxiliary=auxiliary[real],
            last=last[real],
        )

    def _forward(self, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """States [S, T, 3H] entering the chosen layers, and [S, T, H] after the final norm, of padded token ids [S, T]."""
        config, weights = self.config, self.weights
        frequencies = inverse_frequencies(config.rope_scaling, config.head_dim, config.rope_theta).to(token_ids.device)
        angles = torch.arange(token_ids.shape[1], device=token_ids.device)[:, None].float() * frequencies
        magnitude = rope_magnitude(config.rope_scaling)
        cos, sin = (magnitude * angles.cos()).to(weights.embed.dtype), (magnitude * angles.sin()).to(weights.embed.dtype)
        hidden = weights.embed[token_ids]
        entering: dict[int, Tensor] = {}
        for index, layer in enumerate(weights.layers):
            if index in self.auxiliary_layers:
                entering[index] = hidden
            hidden = self._layer(hidden, layer, cos, sin)
        return torch.cat([entering[index] for index in self.auxiliary_layers], dim=-1), self._norm(hidden, weights.norm)

    def _layer(self, hidden: Tensor, layer: LayerWeights, cos: Tensor, sin: Tensor) -> Tensor:
        config = self.config
        heads = (self._norm(hidden, layer.input_norm) @ layer.qkv.T).unflatten(-1, (-1, config.head_dim)).transpose(1, 2)
        queries, keys, values = heads.split([config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        # padding stands at the end, where causal attention never looks from a real token
        mixed = F.scaled_dot_product_attention(
            _rotate(queries, cos, sin), _rotate(keys, cos, sin), values, is_causal=True, enable_gqa=True
        )
        hidden = hidden + mixed.transpose(1, 2).flatten(2) @ layer.out.T
        gate, up = (self._norm(hidden, layer.post_norm) @ layer.gate_up.T).chunk(2, dim=-1)
        return hidden + (F.silu(gate) * up) @ layer.down.T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        normed: Tensor = F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)
        return normed


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
