"""An EAGLE-3 head's weights as the named tensors of a checkpoint, in the spelling that every engine reads (`midlayer.*`)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights

__all__ = ["VOCABULARY_MAPS", "checkpoint_tensors"]

VOCABULARY_MAPS = ("d2t", "t2d")


def checkpoint_tensors(config: Eagle3Config, weights: Eagle3Weights, dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors by name, weights in `dtype`; `d2t` int64 offsets and `t2d` bool, left out where the vocabularies are one.

    vLLM refuses a map between equal vocabularies.
    """
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in _named(config, weights)}
    size, vocab = config.draft_vocab_size, config.shape.vocab_size
    target_ids = weights.target_ids.detach().to("cpu", torch.int64)
    if size < vocab:
        tensors["d2t"] = target_ids - torch.arange(size)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, target_ids, True)
    else:
        assert torch.equal(target_ids, torch.arange(size)), "a full vocabulary in another order cannot be expressed without a map"
    return tensors


def _named(config: Eagle3Config, weights: Eagle3Weights) -> Iterator[tuple[str, Tensor]]:
    shape = config.shape
    rows = [heads * shape.head_dim for heads in (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)]
    yield "fc.weight", weights.fc
    if weights.input_norm is not None:
        yield "input_norm.weight", weights.input_norm
    if weights.fc_norm is not None:
        for index, norm in enumerate(weights.fc_norm):
            yield f"fc_norm.{index}.weight", norm
    yield "midlayer.input_layernorm.weight", weights.embed_norm
    yield "midlayer.hidden_norm.weight", weights.hidden_norm
    for name, part in zip("qkv", weights.qkv.split(rows), strict=True):
        yield f"midlayer.self_attn.{name}_proj.weight", part
    yield "midlayer.self_attn.o_proj.weight", weights.out
    yield "midlayer.post_attention_layernorm.weight", weights.post_norm
    for name, part in zip(("gate", "up"), weights.gate_up.chunk(2), strict=True):
        yield f"midlayer.mlp.{name}_proj.weight", part
    yield "midlayer.mlp.down_proj.weight", weights.down
    yield "norm.weight", weights.norm
    yield "lm_head.weight", weights.head
    if weights.embed is not None:
        yield "embed_tokens.weight", weights.embed
