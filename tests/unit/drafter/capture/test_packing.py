from __future__ import annotations

from itertools import accumulate

import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.drafter.capture.packing import blocks_of, groups_within, pack_tokens
from breakeven.drafter.data.samples import Sample

LENGTHS = st.lists(st.integers(1, 70), min_size=1, max_size=12)


def test_packed_tokens_are_the_samples_end_to_end():
    samples = [
        Sample(sample_id="a", kind="k", token_ids=(5, 6, 7), loss_mask=(False, True, True), num_prompt_tokens=1),
        Sample(sample_id="b", kind="k", token_ids=(8,), loss_mask=(True,), num_prompt_tokens=0),
        Sample(sample_id="c", kind="k", token_ids=(9, 9), loss_mask=(False, False), num_prompt_tokens=2),
    ]
    packed = pack_tokens(samples, torch.device("cpu"))
    assert packed.token_ids.tolist() == [5, 6, 7, 8, 9, 9]
    assert packed.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.samples.tolist() == [0, 0, 0, 1, 2, 2]
    assert packed.starts.tolist() == [0, 3, 4, 6]
    assert packed.loss_mask.tolist() == [False, True, True, True, False, False]
    assert (packed.token_ids.dtype, packed.positions.dtype, packed.samples.dtype) == (torch.int64, torch.int64, torch.int32)


@given(LENGTHS)
def test_every_row_stands_in_one_block_at_its_position_in_order(lengths):
    starts = [0, *accumulate(lengths)]
    owners = [(sample, position) for sample, length in enumerate(lengths) for position in range(length)]
    seen = {}
    for block in blocks_of(starts):
        placed = dict(zip(block.places.tolist(), (owners[row] for row in block.rows), strict=True))
        for place, (sample, position) in placed.items():
            assert 0 <= place < block.num_samples * block.length
            assert place % block.length == position
            # a block's line holds one sample
            assert placed[place - position][0] == sample
            assert (sample, position) not in seen
            seen[sample, position] = True
        assert len(block.rows) * 2 > block.num_samples * block.length or block.num_samples == 1
    assert len(seen) == len(owners)


@given(LENGTHS, st.integers(1, 200))
def test_groups_are_consecutive_complete_and_within_the_limit(lengths, limit):
    groups = list(groups_within(lengths, limit))
    assert [index for first, end in groups for index in range(first, end)] == list(range(len(lengths)))
    for first, end in groups:
        assert sum(lengths[first:end]) <= limit or end - first == 1


def test_no_samples_are_no_groups():
    assert list(groups_within([], 5)) == []
