"""Weights and cache of one GPU, against the sizes that model cards give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breakeven.costs.prior.architecture import Experts, GroupedHeads, LatentHeads, Precisions, TargetShape
from breakeven.costs.prior.memory import cache_bytes, weight_bytes

EIGHT_B = TargetShape(
    name="8B",
    hidden=4096,
    vocab=128256,
    num_layers=32,
    attention=GroupedHeads(heads=32, kv_heads=8, head_dim=128),
    dense_intermediate=14336,
    experts=None,
    precisions=Precisions(),
)
LATENT = TargetShape(
    name="671B",
    hidden=7168,
    vocab=129280,
    num_layers=61,
    attention=LatentHeads(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
    dense_intermediate=18432,
    experts=Experts(num=256, top_k=8, intermediate=2048, shared=2048, num_layers=58),
    precisions=Precisions(attention="fp8", dense="fp8", shared="fp8", experts="fp8"),
)


def test_weights_are_those_of_the_cards() -> None:
    assert weight_bytes(EIGHT_B, 1) == pytest.approx(16.06e9, rel=0.01)  # 8.03 billion parameters
    assert weight_bytes(LATENT, 8) == pytest.approx(671e9 / 8, rel=0.01)


def test_the_cache_of_a_token() -> None:
    assert cache_bytes(EIGHT_B, 1, 1) == 131_072
    # eight heads split over four GPUs, and one whole on each of sixteen
    assert cache_bytes(EIGHT_B, 1, 4) == 131_072 / 4
    assert cache_bytes(EIGHT_B, 1, 16) == 131_072 / 8
    # a latent is whole on every GPU
    assert cache_bytes(LATENT, 1, 8) == 61 * 576 * 2


def test_a_window_bounds_what_its_layers_keep() -> None:
    windowed = replace(EIGHT_B, sliding_window=128, num_sliding=16)
    assert cache_bytes(windowed, 1024, 1) == (16 * 1024 + 16 * 128) * 4096
