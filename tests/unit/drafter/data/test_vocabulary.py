"""The draft vocabulary: the most frequent answer tokens of training, end tokens always, coverage told of both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.vocabulary import Coverage, choose_vocabulary, count_tokens, coverage, coverage_curve, required_tokens
from breakeven.errors import DataError, UsageError


def sample(prompt: list[int], answer: list[int]) -> Sample:
    return Sample(
        sample_id="p",
        kind="custom",
        token_ids=(*prompt, *answer),
        loss_mask=(False,) * len(prompt) + (True,) * len(answer),
        num_prompt_tokens=len(prompt),
    )


def test_answers_count_and_prompts_do_not() -> None:
    counts = count_tokens([sample([1, 1, 1, 1], [2, 2, 3])] * 1500, 6)
    assert counts.answers.tolist() == [0, 0, 3000, 1500, 0, 0]
    assert counts.prompts.tolist() == [0, 6000, 0, 0, 0, 0]
    assert choose_vocabulary(counts, 1).tolist() == [2]
    assert choose_vocabulary(counts, 2).tolist() == [2, 3]
    # of equally frequent ones the lowest
    assert choose_vocabulary(counts, 4).tolist() == [0, 1, 2, 3]
    assert choose_vocabulary(counts, 2, always=[5]).tolist() == [2, 5]


def test_stop_tokens_and_special_tokens_that_occur_are_required(make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    start, stop = (target.tokenizer.token_id(name) for name in ("<|im_start|>", "<|im_end|>"))
    assert start is not None
    counts = count_tokens([sample([start], [7])], target.identity.vocab_size)
    required = required_tokens(target, counts)
    assert required == {start, stop}
    assert set(choose_vocabulary(counts, 3, required).tolist()) == {7, start, stop}


def test_coverage_is_chosen_from_training_and_told_of_both() -> None:
    train = count_tokens([sample([0], [1] * 6 + [2] * 3 + [3])], 8)
    held_out = count_tokens([sample([0], [1, 2, 4, 4])], 8)
    nobody = count_tokens([], 8)
    assert coverage_curve(train, held_out, [1, 2, 9]) == (
        Coverage(size=1, train=0.6, held_out=0.25),
        Coverage(size=2, train=0.9, held_out=0.5),
    )
    assert coverage(nobody, np.array([1])) is None
    assert coverage_curve(train, nobody, [1])[0].held_out is None


def test_what_cannot_be_chosen() -> None:
    counts = count_tokens([sample([0], [1])], 8)
    for size, always, message in (
        (0, (), "expected 1 to 8"),
        (9, (), "expected 1 to 8"),
        (1, (1, 2), "no room for the 2"),
        (2, (8,), "the target has 0 to 7"),
    ):
        with pytest.raises(UsageError, match=message):
            choose_vocabulary(counts, size, always)
    with pytest.raises(DataError, match="no answer tokens"):
        choose_vocabulary(count_tokens([], 8), 2)
    with pytest.raises(DataError, match="token id 9 lies outside the vocabulary of 8"):
        count_tokens([sample([0], [9])], 8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 19), min_size=1, max_size=60), st.integers(1, 20), st.sets(st.integers(0, 19), max_size=3))
def test_nothing_left_out_is_more_frequent_than_what_is_in(answer: list[int], size: int, always: set[int]) -> None:
    if len(always) > size:
        return
    counts = count_tokens([sample([0], answer)], 20)
    ids = choose_vocabulary(counts, size, always).tolist()
    assert len(set(ids)) == size
    assert ids == sorted(ids)
    assert always <= set(ids)
    free = [counts.answers[i] for i in ids if i not in always]
    out = [counts.answers[i] for i in range(20) if i not in ids]
    assert not free or not out or min(free) >= max(out)
