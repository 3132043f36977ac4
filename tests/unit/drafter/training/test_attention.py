from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.drafter.capture.sample_mask import block_mask
from breakeven.drafter.training.attention import attend_samples, flex_attend, merge_own_steps


def random_heads(num_rows, *, num_heads=6, num_kv_heads=2, head_dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_rows, heads, head_dim, generator=generator) for heads in (num_heads, num_kv_heads, num_kv_heads)]


def samples_of(starts):
    return torch.from_numpy(np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts)))


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, 511), max_size=6, unique=True))
def test_the_block_mask_covers_what_is_visible_and_masks_only_where_needed(cuts):
    starts = np.array([0, *sorted(cuts), 512], dtype=np.int64)
    samples = samples_of(starts)
    rows = torch.arange(512)
    visible = (samples[:, None] == samples[None]) & (rows[None] <= rows[:, None])
    mask = block_mask(samples, starts)
    computed = torch.zeros(512, 512, dtype=torch.bool)
    for block in range(4):
        queries = slice(block * 128, block * 128 + 128)
        partial = mask.kv_indices[0, 0, block, : mask.kv_num_blocks[0, 0, block]].tolist()
        full = mask.full_kv_indices[0, 0, block, : mask.full_kv_num_blocks[0, 0, block]].tolist()
        assert not set(partial) & set(full)
        for other in full:
            assert visible[queries, other * 128 : other * 128 + 128].all()
        for other in partial + full:
            keys = slice(other * 128, other * 128 + 128)
            computed[queries, keys] = visible[queries, keys]
    assert torch.equal(computed, visible)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_flex_attention_equals_attention_sample_by_sample(num_kv_heads):
    """Its forward as torch writes it out on a CPU; the compiled kernel is checked where training starts on a GPU."""
    starts = np.array([0, 100, 107, 400, 512], dtype=np.int64)
    queries, keys, values = random_heads(512, num_kv_heads=num_kv_heads)
    mixed, lse = attend_samples(starts.tolist())(queries, keys, values)
    flex_mixed, flex_lse = flex_attend(samples_of(starts), starts)(queries, keys, values)
    torch.testing.assert_close(flex_mixed, mixed, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(flex_lse, lse, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_own", [1, 3])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_merging_equals_one_softmax_over_all_keys(num_own, size):
    queries, keys, values = random_heads(9, seed=1)
    queries = queries * size
    own = [random_heads(9, seed=2 + index) for index in range(num_own)]
    mixed, lse = attend_samples([0, 9])(queries, keys, values)
    merged = merge_own_steps(mixed, lse, queries, [key for _, key, _ in own], [value for _, _, value in own])

    def wide(x):
        return x.repeat_interleave(3, dim=1)

    scores = torch.einsum("qnd,knd->nqk", queries, wide(keys)).masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), -torch.inf)
    extra = torch.stack([(queries * wide(key)).sum(-1).T for _, key, _ in own], dim=-1)
    chances = (torch.cat([scores, extra], dim=-1) / math.sqrt(8)).softmax(-1)
    expected = torch.einsum("nqk,knd->qnd", chances[..., :9], wide(values))
    for index, (_, _, value) in enumerate(own):
        expected = expected + chances[..., 9 + index].T[..., None] * wide(value)
    torch.testing.assert_close(merged, expected, rtol=1e-4, atol=1e-5)
