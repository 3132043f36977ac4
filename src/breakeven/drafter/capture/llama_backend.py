"""Our own Llama forward for captures: rows are packed, so only attention sees any padding, and no mask is needed.

Tested against transformers and `drafter/reference/`. Shapes: N rows, S samples and L rows each of a padded block, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.checkpoints.folder import ModelFolder
from breakeven.drafter.capture.packed_forward import PackedForward, departure
from breakeven.drafter.capture.packing import Block, blocks_of, sent
from breakeven.drafter.model.layer_functions import after_attention, causal_attention, rms_norm, rotary_tables, rotate
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights

__all__ = ["LlamaBackend"]

# A usual conversation: what the packed forward is tried on before it is trusted.
CHECKED_SAMPLE_TOKENS = 300


@dataclass(frozen=True, slots=True)
class _Place:
    num_samples: int
    length: int
    rows: Tensor
    places: Tensor


class LlamaBackend:
    architecture = "LlamaForCausalLM"
    is_routed = False

    def __init__(self, config: LlamaConfig, weights: LlamaWeights) -> None:
        self._config, self._weights = config, weights
        self.hidden_size, self.vocab_size, self.num_layers = config.hidden_size, config.vocab_size, config.num_layers
        self.max_positions = config.max_positions
        self.dtype, self.device = weights.embed.dtype, weights.embed.device
        self._packed: PackedForward | None = None

    @classmethod
    def from_folder(cls, folder: ModelFolder, *, device: torch.device, dtype: torch.dtype) -> LlamaBackend:
        """Read the weights.

        Raises:
            CheckpointError: a folder that is no plain Llama, or lacks tensors.
        """
        config = LlamaConfig.from_folder(folder)
        return cls(config, LlamaWeights.from_folder(folder, config, dtype).to(device))

    @property
    def embed_weight(self) -> Tensor:
        return self._weights.embed

    @property
    def head_weight(self) -> Tensor:
        return self._weights.head

    def compile_for(self, num_rows: int, *, compiled: bool = True) -> tuple[str, ...]:
        """Take the packed forward for up to `num_rows` tokens from now on, if it runs and agrees; else a note says why not."""
        packed = PackedForward(self._config, self._weights, num_rows, compiled=compiled)
        token_ids = torch.randint(self.vocab_size, (num_rows - 5,), generator=torch.Generator().manual_seed(0)).to(self.device)
        longest = max(1, min(CHECKED_SAMPLE_TOKENS, self.max_positions))
        starts = [*range(0, len(token_ids), longest), len(token_ids)]
        layers = (0, self.num_layers // 2, self.num_layers - 1)
        try:
            reason = departure(packed.states(token_ids, starts, layers), self.states(token_ids, starts, layers))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            # compilers fail in many ways, and each has the same remedy
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
        if reason is None:
            self._packed = packed
            return ()
        return (f"the target's compiled forward is not used, the plain one is slower: {reason}",)

    @torch.no_grad()
    def states(self, token_ids: Tensor, starts: Sequence[int], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        if self._packed is not None and self._packed.num_rows // 2 < len(token_ids) <= self._packed.num_rows:
            return self._packed.states(token_ids, starts, layers)
        config, weights = self._config, self._weights
        blocks = self._sent(blocks_of(starts))
        bounds = np.asarray(starts, dtype=np.int64)
        positions = sent(np.arange(len(token_ids)) - np.repeat(bounds[:-1], np.diff(bounds)), self.device)
        cos, sin = rotary_tables(config, positions, self.dtype)
        hidden = weights.embed[token_ids]
        entering: dict[int, Tensor] = {}
        for index, layer in enumerate(weights.layers):
            if index in layers:
                entering[index] = hidden
            qkv = F.linear(rms_norm(hidden, layer.input_norm, config.rms_norm_eps), layer.qkv)
            mixed = self._attend(qkv.view(len(hidden), -1, config.head_dim), cos, sin, blocks)
            hidden = after_attention(hidden, mixed, layer.out, layer.post_norm, layer.gate_up, layer.down, config.rms_norm_eps)
        last = rms_norm(hidden, weights.norm, config.rms_norm_eps)
        return torch.cat([entering[index] for index in layers], dim=-1), last

    def _sent(self, blocks: Sequence[Block]) -> list[_Place]:
        counts = [len(block.rows) for block in blocks]
        rows = sent(np.concatenate([block.rows for block in blocks]), self.device).split(counts)
        places = sent(np.concatenate([block.places for block in blocks]), self.device).split(counts)
        return [_Place(block.num_samples, block.length, row, place) for block, row, place in zip(blocks, rows, places, strict=True)]

    def _attend(self, qkv: Tensor, cos: Tensor, sin: Tensor, blocks: Sequence[_Place]) -> Tensor:
        """Causal attention within each sample; `qkv` [N, heads, D], not rotated yet; returns [N, N * D]."""
        config = self._config
        num_rotated = config.num_heads + config.num_kv_heads
        qkv = torch.cat([rotate(qkv[:, :num_rotated], cos, sin), qkv[:, num_rotated:]], dim=1)
        mixed = qkv.new_empty(len(qkv), config.num_heads * config.head_dim)
        for block in blocks:
            padded = qkv.new_zeros(block.num_samples * block.length, *qkv.shape[1:]).index_copy_(0, block.places, qkv[block.rows])
            heads = padded.view(block.num_samples, block.length, *qkv.shape[1:]).transpose(1, 2)
            queries, keys, values = heads.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)
            attended = causal_attention(queries, keys, values)
            mixed.index_copy_(0, block.rows, attended.flatten(0, 1)[block.places])
        return mixed
